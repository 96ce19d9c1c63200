//go:build integration

package integration

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// sleeping is the sleeper with another image.
func sleeping(image string) string { return strings.Replace(sleeper, images.Web, image, 1) }

// TestPullsOfManyPods runs 20 pods with 10 images that share layers. Each layer is fetched once,
// whichever pull comes first.
func TestPullsOfManyPods(t *testing.T) {
	const count = 10
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			e := env.Containerd(t, env.Options{Version: version})
			registry := env.StartRegistry(t, env.RegistryOptions{})
			front := newProxy(t, registry)
			shared := readImage(t, archiveOf(t, e, images.Web)).with(t, 3<<20)
			all := map[string]bool{}
			a := e.StartAgent(t, env.AgentOptions{})
			a.WaitUp(t)
			var pods []string
			for i := range count {
				img := shared.with(t, 1<<20)
				repository := fmt.Sprintf("team/app%d", i)
				img.push(t, registry, repository, "v1")
				for d := range img.blobs {
					all[d.String()] = true
				}
				for j := range 2 {
					pods = append(pods, fmt.Sprintf("p%d-%d", i, j))
				}
			}
			for i, name := range pods {
				put(t, a, name, sleeping(fmt.Sprintf("%s/team/app%d:v1", front.Host, i/2)))
			}
			a.WaitReady(t, pods...)
			front.set(func(p *proxy) {
				for d := range all {
					// Debian's containerd does not fetch the layer that it has from the sample
					// images. No containerd fetches a layer twice.
					if n := p.fetched[digest.Digest(d)]; n > 1 {
						t.Errorf("%s was fetched %d times", d, n)
					}
				}
				for d, n := range p.fetched {
					if !all[d.String()] {
						t.Errorf("%s, of no image, was fetched %d times", d, n)
					}
				}
				if len(p.fetched) < 2*count+1 {
					t.Errorf("%d blobs were fetched", len(p.fetched))
				}
				t.Logf("%d pods, %d images: %d different blobs, each fetched once; at most %d at a time", len(pods),
					count, len(p.fetched), p.most)
			})
			reported := 0
			for _, ev := range answers[api.EventList](t, a, "events").Items {
				if ev.Reason == "Pulled" && regexp.MustCompile(
					`^(Successfully pulled image ".*" in \S+ \(\S+ including waiting\)\. Image size: `+
						`\d+ bytes\.|Container image ".*" already present on machine and can be accessed by the pod)$`,
				).MatchString(ev.Message) {
					reported++
				}
			}
			if reported != len(pods) {
				t.Errorf("%d of %d pods were told that their image is there", reported, len(pods))
			}
			if n := metricCount(t, a, "kubelet_image_pull_duration_seconds_count"); n != count {
				t.Errorf("the metric has %d pulls, want %d", n, count)
			}
		})
	}
}

// metricCount returns the sum of a metric's series.
func metricCount(t *testing.T, a *env.Agent, name string) (sum int) {
	t.Helper()
	for line := range strings.SplitSeq(page(t, a, "/metrics"), "\n") {
		if strings.HasPrefix(line, name) {
			n, err := strconv.Atoi(line[strings.LastIndex(line, " ")+1:])
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// TestImagesShowProgress pulls an image slowly. berth images shows how much of it has arrived, and
// -w keeps showing it.
func TestImagesShowProgress(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	registry := env.StartRegistry(t, env.RegistryOptions{})
	front := newProxy(t, registry)
	img := readImage(t, archiveOf(t, e, images.Web)).with(t, 16<<20)
	img.push(t, registry, "team/slow", "v1")
	other := readImage(t, archiveOf(t, e, images.Web)).with(t, 1<<10)
	other.push(t, registry, "team/next", "v1")
	// until the test has seen enough of the progress
	front.set(func(p *proxy) { p.rate = 256 << 10 })
	a := e.StartAgent(t, env.AgentOptions{Kubelet: "serializeImagePulls: true"})
	a.WaitUp(t)
	name := front.Host + "/team/slow:v1"
	put(t, a, "slow", sleeping(name))
	put(t, a, "critical", "priorityClassName: system-node-critical"+sleeping(name))
	row := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` +Pulling +(\d+)% of \S+ +\S+ +2 `)
	var seen []int
	env.Eventually(t, "a few different percentages", func() error {
		out, errOut, code := a.CLI("images")
		if m := row.FindStringSubmatch(out); m != nil {
			percent, _ := strconv.Atoi(m[1])
			if len(seen) == 0 || seen[len(seen)-1] != percent {
				seen = append(seen, percent)
			}
		}
		if code != 0 || len(seen) < 4 {
			return fmt.Errorf("code %d, %s, %v so far, in\n%s", code, errOut, seen, out)
		}
		return nil
	})
	if !slices.IsSorted(seen) || seen[0] < 0 || seen[len(seen)-1] > 100 {
		t.Errorf("percentages are %v", seen)
	}
	watch := begin(t, a, nil, "images", "-w")
	put(t, a, "next", sleeping(front.Host+"/team/next:v1"))
	env.Eventually(t, "the other image to be queued", func() error {
		out, _, _ := a.CLI("images")
		if !regexp.MustCompile(`team/next:v1 +Queued +- `).MatchString(out) {
			return fmt.Errorf("images are\n%s", out)
		}
		return nil
	})
	waitPod(t, a, "next", "waiting", waitingFor("ContainerCreating"))
	watch.waitOut(t, "team/next:v1")
	front.set(func(p *proxy) { p.rate = 0 })
	a.WaitReady(t, "slow", "critical", "next")
	watch.waitOut(t, "Ended")
	watch.interrupt(t)
	if n := len(regexp.MustCompile(`(?m)^\S+/team/slow:v1 +Pulling +\d+%`).FindAllString(watch.out.String(),
		-1)); n == 0 {
		t.Errorf("the watch printed:\n%s", watch.out.String())
	}
}

// TestStalledRegistries uses one registry that stops in the middle of a layer, and one that never
// answers. Their pulls are cancelled and repeated, and other pulls go on.
func TestStalledRegistries(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			e := env.Containerd(t, env.Options{Version: version})
			registry := env.StartRegistry(t, env.RegistryOptions{})
			front, silent := newProxy(t, registry), newProxy(t, registry)
			img := readImage(t, archiveOf(t, e, images.Web)).with(t, 4<<20)
			img.push(t, registry, "team/stalls", "v1")
			readImage(t, archiveOf(t, e, images.Web)).with(t, 1<<20).push(t, registry, "team/other", "v1")
			layers := img.layers(t)
			last := layers[len(layers)-1]
			front.set(func(p *proxy) { p.stall[last] = 3 << 20 })
			silent.set(func(p *proxy) { p.deny = true })
			a := e.StartAgent(t, env.AgentOptions{
				Berth: "imagePullStallTimeout: 8s", Kubelet: "maxParallelImagePulls: 2",
			})
			a.WaitUp(t)
			put(t, a, "stalls", sleeping(front.Host+"/team/stalls:v1"))
			put(t, a, "silent", sleeping(silent.Host+"/team/stalls:v1"))
			put(t, a, "third", sleeping(registry.Host+"/team/other:v1"))
			waitEvent(t, a, "Failed", "the pull stalled: the registry sent nothing for 8s, after ")
			waitEvent(t, a, "Failed", "the pull stalled: the registry sent nothing for 8s")
			waitPod(t, a, "silent", "backing off", waitingFor("ImagePullBackOff"))
			// between two attempts
			env.Eventually(t, "why about the silent registry", func() error {
				if s := why(t, a, "silent"); s.Step != "images" || !strings.Contains(s.WaitsFor, "stalled") ||
					s.NextRetry == nil {
					return fmt.Errorf("step %q waits for %q, next retry %v", s.Step, s.WaitsFor, s.NextRetry)
				}
				return nil
			})
			silent.set(func(p *proxy) { p.deny = false })
			a.WaitReady(t, "stalls", "silent", "third")
			front.set(func(p *proxy) {
				if p.stalled != 1 || p.fetched[last] > 2 {
					t.Errorf("given up %d times, fetched %d times", p.stalled, p.fetched[last])
				}
			})
		})
	}
}

// login is a Secret's manifest.
func login(name, host, user, password string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\ntype: kubernetes.io/dockerconfigjson\nmetadata: {name: %s}\n"+
		"stringData:\n  .dockerconfigjson: |\n    "+
		`{"auths": {%q: {"username": %q, "password": %q}}}`+"\n", name, host, user, password)
}

// TestRegistryWithLogin uses a registry with accounts and a certificate of its own CA.
func TestRegistryWithLogin(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			e := env.Containerd(t, env.Options{Version: version})
			registry := env.StartRegistry(t, env.RegistryOptions{TLS: true, Login: true})
			e.TrustRegistry(t, registry.Host,
				fmt.Sprintf("server = %q\n[host.%q]\n  ca = %q\n", registry.URL(), registry.URL(), registry.CA))
			img := readImage(t, archiveOf(t, e, images.Web)).with(t, 1<<20)
			for _, repository := range []string{"team/a", "team/b", "team/c"} {
				img.with(t, 1<<10).push(t, registry, repository, "v1")
			}
			bin, config := providers(t, registry.Host)
			a := e.StartAgent(t, env.AgentOptions{
				Kubelet: "logging: {verbosity: 10}",
				Flags: []string{
					"--image-credential-provider-config", config, "--image-credential-provider-bin-dir", bin,
				},
			})
			a.WaitUp(t)
			correctedSecret(t, a, registry)
			othersImage(t, a, registry)
			nodesLogin(t, a, registry)
			pluginsLogin(t, a, registry)
			if err := a.Restart(); err != nil {
				t.Fatal(err)
			}
			a.WaitReady(t, "private", "config", "plugin")
			othersImage(t, a, registry) // the records stay over a restart of the agent
			noSecretReported(t, a)
		})
	}
}

// providers makes a credential provider plugin that logs in to team/c, and the plugin's config.
func providers(t *testing.T, host string) (bin, config string) {
	t.Helper()
	bin = t.TempDir()
	script := fmt.Sprintf(`#!/bin/sh
read -r request
echo "asked: $request" >&2
cat <<END
{"kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "cacheKeyType": "Image", "cacheDuration": "1h",
 "auth": {%q: {"username": %q, "password": "$PASSWORD"}}}
END
`, host+"/team/c", env.RegistryUser2)
	if err := os.WriteFile(bin+"/test-provider", []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	config = bin + "/providers.yaml"
	text := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: test-provider
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["%s/team/c"]
  defaultCacheDuration: 1h
  env: [{name: PASSWORD, value: %s}]
`, host, env.RegistryPassword2)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return bin, config
}

// correctedSecret checks a pod whose Secret is first missing, then wrong, and then corrected. The
// pod does not wait for its back-off.
func correctedSecret(t *testing.T, a *env.Agent, r *env.Registry) {
	image := r.Host + "/team/a:v1"
	put(t, a, "private", "imagePullSecrets: [{name: login}]"+sleeping(image))
	waitEvent(t, a, "FailedToRetrieveImagePullSecret",
		"Unable to retrieve some image pull secrets (login); attempting to pull the image may not succeed.")
	waitPod(t, a, "private", "backing off", waitingFor("ImagePullBackOff"))
	waitEvent(t, a, "Failed", `Failed to pull image "`+image+`"`)
	a.WriteManifest(t, "login.yaml", login("login", r.Host, env.RegistryUser, "not-the-password"))
	env.Eventually(t, "the wrong login to be tried", func() error {
		for _, ev := range answers[api.EventList](t, a, "events").Items {
			if ev.Reason == "Pulling" && ev.InvolvedObject.Name == "private-"+env.NodeName && ev.Count > 1 {
				return nil
			}
		}
		return fmt.Errorf("it is not")
	})
	waitPod(t, a, "private", "backing off", waitingFor("ImagePullBackOff"))
	var retry time.Time
	env.Eventually(t, "a back-off that is long enough", func() error {
		pulls := answers[api.Images](t, a, "images").Pulls
		if len(pulls) != 1 || pulls[0].State != "BackOff" || pulls[0].RetryAt == nil || pulls[0].Message == "" ||
			time.Until(*pulls[0].RetryAt) < 8*time.Second {
			return fmt.Errorf("pulls are %+v", pulls)
		}
		retry = *pulls[0].RetryAt
		return nil
	})
	a.WriteManifest(t, "login.yaml", login("login", r.URL(), env.RegistryUser, env.RegistryPassword))
	a.WaitReady(t, "private")
	// The time of the attempt matters, and not how long the attempt took.
	for _, ev := range answers[api.EventList](t, a, "events").Items {
		if ev.Reason == "Pulling" && ev.InvolvedObject.Name == "private-"+env.NodeName &&
			// the event's time has whole seconds only
			!ev.LastTimestamp.Time.Before(retry.Add(-time.Second)) {
			t.Errorf("the pod waited for its back-off, which ended at %v, until %v", retry, ev.LastTimestamp)
		}
	}
}

// othersImage checks that a pod without the Secret, or with a Secret that the registry refuses, may
// not use the image that is present. A pod with the same login may use it.
func othersImage(t *testing.T, a *env.Agent, r *env.Registry) {
	image := r.Host + "/team/a:v1"
	a.WriteManifest(t, "bad-login.yaml", login("bad-login", r.Host, "mallory-user", "guess-word"))
	a.WriteManifest(t, "own-login.yaml", login("own-login", r.Host, env.RegistryUser2, env.RegistryPassword2))
	put(t, a, "without", sleeping(image))
	put(t, a, "never", strings.Replace(sleeping(image), image, image+"\n    imagePullPolicy: Never", 1))
	put(t, a, "mallory", "imagePullSecrets: [{name: bad-login}]"+sleeping(image))
	put(t, a, "same",
		"imagePullSecrets: [{name: login}]"+
			strings.Replace(sleeping(image), image, image+"\n    imagePullPolicy: Never", 1))
	put(t, a, "own", "imagePullSecrets: [{name: own-login}]"+sleeping(image))
	waitPod(t, a, "without", "backing off", waitingFor("ImagePullBackOff"))
	waitPod(t, a, "mallory", "backing off", waitingFor("ImagePullBackOff"))
	p := waitPod(t, a, "never", "waiting", waitingFor("ErrImageNeverPull"))
	if got, want := statusOf(p, "main").State.Waiting.Message,
		fmt.Sprintf("Container image %q is not present with pull policy of Never", image); got != want {
		t.Errorf("message is %q, want %q", got, want)
	}
	a.WaitReady(t, "same", "own")
	waitEvent(t, a, "Pulled",
		fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", image))
	for _, name := range []string{"without", "never", "mallory"} {
		if p := podOf(t, a, name); slices.ContainsFunc(p.Status.ContainerStatuses,
			func(s corev1.ContainerStatus) bool { return s.ContainerID != "" }) {
			t.Errorf("pod %s has a container", name)
		}
	}
	for _, name := range []string{"without", "never", "mallory", "same", "own"} {
		a.RemoveManifest(t, name+".yaml")
	}
	a.WaitGone(t, "without", "never", "mallory", "same", "own")
}

// nodesLogin checks that the logins in the root directory's config.json are for every pod as soon
// as the file is there.
func nodesLogin(t *testing.T, a *env.Agent, r *env.Registry) {
	put(t, a, "config", sleeping(r.Host+"/team/b:v1"))
	waitPod(t, a, "config", "backing off", waitingFor("ImagePullBackOff"))
	text := fmt.Sprintf(`{"auths": {%q: {"username": %q, "password": %q}}}`, r.Host+"/team/b", env.RegistryUser,
		env.RegistryPassword)
	if err := os.WriteFile(a.RootDir+"/config.json", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "config")
}

// pluginsLogin checks that a plugin is called for the images that it matches.
func pluginsLogin(t *testing.T, a *env.Agent, r *env.Registry) {
	put(t, a, "plugin", sleeping(r.Host+"/team/c:v1"))
	a.WaitReady(t, "plugin")
}

// page returns a page of the agent's API.
func page(t *testing.T, a *env.Agent, path string) string {
	t.Helper()
	resp, err := a.Get(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// noSecretReported looks for the logins in everything that the agent writes and answers.
func noSecretReported(t *testing.T, a *env.Agent) {
	t.Helper()
	log, err := os.ReadFile(a.Log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "level=DEBUG") && !strings.Contains(string(log), `"level":"DEBUG"`) {
		t.Errorf("the log has no debug output, so it proves nothing:\n%.2000s", log)
	}
	said := map[string]string{"log": string(log), "/pods": page(t, a, "/pods"), "/metrics": page(t, a, "/metrics")}
	for _, verb := range [][]string{
		{"images", "-o", "json"},
		{"events", "-o", "json"},
		{"ps", "-o", "json"},
		{"manifests", "-o", "json"},
		{"why", "private", "-o", "json"},
		{"why", "config"},
		{"describe", "private"},
		{"describe", "plugin"},
	} {
		out, errOut, code := a.CLI(verb...)
		if code != 0 {
			t.Errorf("%v: code %d, %s", verb, code, errOut)
		}
		said["berth "+strings.Join(verb, " ")] = out + errOut
	}
	for where, text := range said {
		for user, password := range map[string]string{
			env.RegistryUser: env.RegistryPassword, env.RegistryUser2: env.RegistryPassword2,
			"mallory-user": "guess-word", "wrong": "not-the-password",
		} {
			for _, secret := range []string{
				user + ":" + password, password, base64.StdEncoding.EncodeToString([]byte(user + ":" + password)),
				env.RegistryUser,
			} {
				if i := strings.Index(text, secret); i >= 0 {
					t.Errorf("%s has %s: …%s", where, secret, text[max(0, i-200):min(len(text), i+200)])
				}
			}
		}
	}
}
