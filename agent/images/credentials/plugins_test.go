package credentials

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	credentialproviderv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

// pluginMode is the variable that makes this test's program a plugin.
const pluginMode = "BERTH_TEST_PLUGIN"

// actAsPlugin is the plugin. The user name in its answer is made of its arguments and the request's
// image; or it fails as mode says.
func actAsPlugin(mode string) int {
	data, err := io.ReadAll(os.Stdin)
	var request credentialproviderv1.CredentialProviderRequest
	if err == nil {
		err = json.Unmarshal(data, &request)
	}
	if err != nil || request.Kind != "CredentialProviderRequest" {
		fmt.Fprintf(os.Stderr, "bad request %q: %v\n", data, err)
		return 3
	}
	response := credentialproviderv1.CredentialProviderResponse{
		TypeMeta:     metav1.TypeMeta{Kind: "CredentialProviderResponse", APIVersion: request.APIVersion},
		CacheKeyType: credentialproviderv1.ImagePluginCacheKeyType,
		Auth: map[string]credentialproviderv1.AuthConfig{"r.io": {
			Username: strings.Join(os.Args[1:], " ") + request.Image, Password: "hunter2",
		}},
	}
	switch mode {
	case "fail":
		fmt.Fprintf(os.Stderr, "no login for %s with %s\n", request.Image, os.Getenv("TOKEN"))
		return 1
	case "chatter":
		fmt.Fprint(os.Stderr, strings.Repeat("x", 1<<20))
		return 1
	case "flood":
		fmt.Print(strings.Repeat(" ", 2<<20))
	case "garbage":
		fmt.Print("hunter2")
		return 0
	case "kind":
		response.Kind = "Pod"
	case "version":
		response.APIVersion = "credentialprovider.kubelet.k8s.io/v9"
	case "hang":
		select {}
	case "child":
		if err := exec.CommandContext(context.Background(), "sleep", "600").Start(); err != nil {
			return 4
		}
		child := exec.CommandContext(context.Background(), "sleep", "600")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			return 4
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(response); err != nil {
		return 2
	}
	return 0
}

// pluginDir returns a directory in which this test's program is a plugin called "p".
func pluginDir(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "p")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func writePluginConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plugins.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// onePlugin is a config of plugin "p" in a mode.
func onePlugin(mode string) string {
	return `kind: CredentialProviderConfig
apiVersion: kubelet.config.k8s.io/v1
providers:
- name: p
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["*.io", "other.example:5000/x"]
  defaultCacheDuration: 1h
  args: [--as, "you "]
  env:
  - {name: ` + pluginMode + `, value: ` + mode + `}
  - {name: TOKEN, value: top-secret-token}
`
}

func TestPluginIsRun(t *testing.T) {
	for mode, want := range map[string]string{
		"good":    "--as you r.io/a",
		"child":   "--as you r.io/a",
		"fail":    "credential provider p: exit status 1: no login for r.io/a with [redacted]",
		"chatter": "credential provider p: exit status 1: " + strings.Repeat("x", maxErrorText),
		"flood":   "credential provider p: its answer is longer than 1048576 bytes",
		"garbage": "credential provider p: its answer: it is not valid JSON, from byte 1 on",
		"kind":    "credential provider p: its answer is not a CredentialProviderResponse",
		"version": "credential provider p: its answer's apiVersion is not the request's, " +
			"credentialprovider.kubelet.k8s.io/v1",
	} {
		t.Run(mode, func(t *testing.T) {
			var log bytes.Buffer
			p, err := OpenPlugins(writePluginConfig(t, onePlugin(mode)), pluginDir(t), nil,
				slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			list, err := p.Lookup(t.Context(), static, "r.io/a")
			got := fmt.Sprint(err)
			if len(list) > 0 && err == nil {
				got = list[0].Username.Reveal()
			}
			if got != want {
				t.Errorf("got %.300q, want %.300q", got, want)
			}
			for _, secret := range []string{"hunter2", "top-secret-token"} {
				if strings.Contains(log.String()+fmt.Sprint(err), secret) {
					t.Errorf("%s is in the log: %s", secret, log.String())
				}
			}
			if list, err := p.Lookup(t.Context(), static, "else.example/a"); len(list) != 0 || err != nil {
				t.Errorf("an image that nobody matches: %v, %v", list, err)
			}
		})
	}
}

func TestPluginThatHangsIsEnded(t *testing.T) {
	p, err := OpenPlugins(writePluginConfig(t, onePlugin("hang")), pluginDir(t), nil, quietLog())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("enough"))
	defer cancel()
	if _, err := p.Lookup(ctx, static, "r.io/a"); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("error is %v", err)
	}
}

func TestNoPlugins(t *testing.T) {
	p, err := OpenPlugins("", "", nil, quietLog())
	if err != nil {
		t.Fatal(err)
	}
	if list, err := p.Lookup(t.Context(), static, "r.io/a"); len(list) != 0 || err != nil {
		t.Errorf("got %v, %v", list, err)
	}
}

// fakePlugin answers without a program.
func fakePlugin(cacheKey string, duration *time.Duration, asked *[]string) *plugin {
	config := kubeletconfigv1.CredentialProvider{
		Name:                 "f",
		MatchImages:          []string{"*.io"},
		DefaultCacheDuration: &metav1.Duration{Duration: time.Hour},
	}
	var mu sync.Mutex
	return newPlugin(config,
		func(_ context.Context, q query) (*credentialproviderv1.CredentialProviderResponse, error) {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			*asked = append(*asked, q.image)
			r := &credentialproviderv1.CredentialProviderResponse{
				CacheKeyType: credentialproviderv1.PluginCacheKeyType(cacheKey),
				Auth:         map[string]credentialproviderv1.AuthConfig{"*.io": {Username: fmt.Sprint(len(*asked))}},
			}
			if duration != nil {
				r.CacheDuration = &metav1.Duration{Duration: *duration}
			}
			return r, nil
		})
}

func TestAnswersAreCached(t *testing.T) {
	zero, minute := time.Duration(0), time.Minute
	images := []string{"a.io/x", "a.io/x", "a.io/y", "b.io/x"}
	for name, tc := range map[string]struct {
		key      string
		duration *time.Duration
		wait     time.Duration // how long to wait before all images are looked up again
		want     []string
	}{
		"image":         {key: "Image", want: []string{"a.io/x", "a.io/y", "b.io/x"}},
		"registry":      {key: "Registry", want: []string{"a.io/x", "b.io/x"}},
		"global":        {key: "Global", want: []string{"a.io/x"}},
		"expired":       {key: "Global", wait: 2 * time.Hour, want: []string{"a.io/x", "a.io/x"}},
		"own duration":  {key: "Global", duration: &minute, wait: 2 * time.Minute, want: []string{"a.io/x", "a.io/x"}},
		"not cached":    {key: "Global", duration: &zero, want: slices.Concat(images, images)},
		"unknown cache": {key: "Pod", want: slices.Concat(images, images)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []string
				p := &Plugins{list: []*plugin{fakePlugin(tc.key, tc.duration, &asked)}, log: quietLog()}
				for range 2 {
					for _, image := range images {
						list, err := p.Lookup(t.Context(), static, image)
						if tc.key == "Pod" {
							if err == nil || !strings.Contains(err.Error(), "cacheKeyType") {
								t.Errorf("error is %v", err)
							}
						} else if err != nil || len(list) != 1 {
							t.Errorf("got %v, %v", list, err)
						}
					}
					time.Sleep(tc.wait)
				}
				if !slices.Equal(asked, tc.want) {
					t.Errorf("asked for %q, want %q", asked, tc.want)
				}
			})
		})
	}
}

func TestPluginIsAskedOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		p := &Plugins{list: []*plugin{fakePlugin("Image", nil, &asked)}, log: quietLog()}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if list, err := p.Lookup(t.Context(), static, "a.io/x"); err != nil || len(list) != 1 {
					t.Errorf("got %v, %v", list, err)
				}
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		synctest.Wait()
		if _, err := p.Lookup(ctx, static, "a.io/x"); !errors.Is(err, context.Canceled) {
			t.Errorf("error of one who does not wait: %v", err)
		}
		wg.Wait()
		if len(asked) != 1 {
			t.Errorf("asked for %q", asked)
		}
	})
}

func TestPluginsOrder(t *testing.T) {
	give := func(name string, auth map[string]credentialproviderv1.AuthConfig, err error) *plugin {
		config := kubeletconfigv1.CredentialProvider{
			Name:                 name,
			MatchImages:          []string{"r.io"},
			DefaultCacheDuration: &metav1.Duration{},
		}
		return newPlugin(config,
			func(context.Context, query) (*credentialproviderv1.CredentialProviderResponse, error) {
				return &credentialproviderv1.CredentialProviderResponse{CacheKeyType: "Image", Auth: auth}, err
			})
	}
	p := &Plugins{log: quietLog(), list: []*plugin{
		give("one",
			map[string]credentialproviderv1.AuthConfig{"r.io": {Username: "one"}, "r.io/a": {Username: "one-a"}}, nil),
		give("two", nil, errors.New("broken")),
		give("three",
			map[string]credentialproviderv1.AuthConfig{"r.io/a": {Username: "three-a"}, "s.io": {Username: "s"}}, nil),
	}}
	list, err := p.Lookup(t.Context(), static, "r.io/a")
	var got []string
	for _, c := range list {
		got = append(got, c.Username.Reveal())
	}
	if want := []string{"one-a", "three-a", "one"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err == nil || err.Error() != "credential provider two: broken" {
		t.Errorf("error is %v", err)
	}
}

func TestPluginConfigs(t *testing.T) {
	bin := pluginDir(t)
	if err := os.WriteFile(filepath.Join(bin, "plain"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	change := func(old, new string) string { return strings.Replace(onePlugin("good"), old, new, 1) }
	for name, tc := range map[string]struct {
		text string
		want string // part of the error; empty for none
	}{
		"v1":      {onePlugin("good"), ""},
		"v1beta1": {change("kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1"), ""},
		"old protocol": {
			change("credentialprovider.kubelet.k8s.io/v1", "credentialprovider.kubelet.k8s.io/v1alpha1"), "",
		},
		"no cache": {change("1h", "0s"), ""},
		"not YAML": {"{", "neither YAML nor JSON"},
		"another kind": {
			change("kind: CredentialProviderConfig", "kind: Pod"), `it is "Pod" of "kubelet.config.k8s.io/v1"`,
		},
		"another version": {
			change("kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v7"),
			"want kind CredentialProviderConfig of apiVersion",
		},
		"unknown field": {change("args:", "arguments:"), `unknown field "arguments"`},
		"no providers": {
			"kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/v1\n",
			"providers: at least one is required",
		},
		"name with a path": {change("name: p", "name: ../p"), `providers[0].name: "../p" cannot be a program's name`},
		"no such program":  {change("name: p", "name: q"), "image credential provider q: "},
		"not executable":   {change("name: p", "name: plain"), "permission denied"},
		"protocol": {
			change("credentialprovider.kubelet.k8s.io/v1", "v1"), `providers[0].apiVersion: "v1" is not supported`,
		},
		"no images": {
			change(`["*.io", "other.example:5000/x"]`, "[]"), "providers[0].matchImages: at least one is required",
		},
		"bad glob":          {change(`"*.io"`, `"[.io"`), `providers[0].matchImages[0]: "[.io" is not HOST`},
		"URL":               {change(`"*.io"`, `"https://r.io"`), "providers[0].matchImages[0]"},
		"no cache duration": {change("defaultCacheDuration: 1h", ""), "providers[0].defaultCacheDuration: is required"},
		"below 0":           {change("1h", "-1h"), "providers[0].defaultCacheDuration: -1h0m0s is below 0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := OpenPlugins(writePluginConfig(t, tc.text), bin, nil, quietLog())
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error is %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestPluginConfigDirectory(t *testing.T) {
	bin := pluginDir(t)
	dir := t.TempDir()
	if _, err := OpenPlugins(dir, bin, nil, quietLog()); err == nil || !strings.Contains(err.Error(), "no *.json") {
		t.Errorf("error of an empty directory is %v", err)
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("b.yaml", onePlugin("good"))
	write("README", "not a config")
	p, err := OpenPlugins(dir, bin, nil, quietLog())
	if err != nil || len(p.list) != 1 {
		t.Fatalf("got %v, %v", p, err)
	}
	write("a.yml", onePlugin("good"))
	if _, err := OpenPlugins(dir, bin, nil, quietLog()); err == nil ||
		!strings.Contains(err.Error(), `b.yaml: providers[0].name: another provider is called "p"`) {
		t.Errorf("error of two of one name is %v", err)
	}
	if _, err := OpenPlugins(filepath.Join(dir, "none"), bin, nil, quietLog()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error of a config that is not there is %v", err)
	}
}
