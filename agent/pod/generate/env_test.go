package generate

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hidden is in every secret value: no error may hold it.
const hidden = "s3cr3t-value"

func envObjects() objects {
	return objects{
		configMaps: map[string]map[string]string{
			"settings": {"COLOUR": "red", "a.key": "dotted", "REF": "$(COLOUR)"},
			"more":     {"COLOUR": "blue"},
			"odd":      {"BAD=NAME": "x"},
		},
		secrets: map[string]map[string][]byte{
			"login": {"USER": []byte("root"), "PASS": []byte(hidden)},
			"raw":   {"BYTES": {0xff, 0xfe}, "NUL": []byte(hidden + "\x00")},
		},
	}
}

func fromConfigMap(name, prefix string, optional bool) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, ConfigMapRef: &v1.ConfigMapEnvSource{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: &optional,
	}}
}

func fromSecret(name, prefix string, optional bool) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, SecretRef: &v1.SecretEnvSource{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: &optional,
	}}
}

func configMapKey(name, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: &optional,
	}}
}

func secretKey(name, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: &optional,
	}}
}

func fileKey(path, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{
		VolumeName: "conf",
		Path:       path,
		Key:        key,
		Optional:   &optional,
	}}
}

func envFile(_, path, key string) (string, bool, error) {
	if path == "broken" {
		return ParseEnvFile("# "+hidden+"\n"+hidden+"\n", key)
	}
	if path != "env" {
		return "", false, errors.New("open /host/path: no such file: " + hidden)
	}
	return ParseEnvFile("A='"+hidden+"'\nEMPTY=''\n", key)
}

func TestEnv(t *testing.T) {
	tests := map[string]struct {
		from []v1.EnvFromSource
		env  []v1.EnvVar
		file EnvFile
		want []string
		err  string
	}{
		"none": {},
		"values in order": {
			env:  []v1.EnvVar{{Name: "B", Value: "2"}, {Name: "A", Value: "1"}},
			want: []string{"B=2", "A=1"},
		},
		"the last of a name counts": {
			env:  []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "x"}, {Name: "A", Value: "2"}},
			want: []string{"A=2", "B=x"},
		},
		"references look back": {
			env: []v1.EnvVar{
				{Name: "LATER", Value: "$(A)"},
				{Name: "A", Value: "1"},
				{Name: "B", Value: "<$(A)>"},
				{Name: "C", Value: "$$(A) $(B)"},
			},
			want: []string{"LATER=$(A)", "A=1", "B=<1>", "C=$(A) <1>"},
		},
		"a variable can use its earlier self": {
			env:  []v1.EnvVar{{Name: "P", Value: "/bin"}, {Name: "P", Value: "/opt:$(P)"}},
			want: []string{"P=/opt:/bin"},
		},
		"from a ConfigMap, sorted, not expanded": {
			from: []v1.EnvFromSource{fromConfigMap("settings", "", false)},
			want: []string{"COLOUR=red", "REF=$(COLOUR)", "a.key=dotted"},
		},
		"prefix": {
			from: []v1.EnvFromSource{fromSecret("login", "DB_", false)},
			want: []string{"DB_PASS=" + hidden, "DB_USER=root"},
		},
		"later sources and env win": {
			from: []v1.EnvFromSource{fromConfigMap("settings", "", false), fromConfigMap("more", "", false)},
			env:  []v1.EnvVar{{Name: "a.key", Value: "own"}, {Name: "X", Value: "$(COLOUR)"}},
			want: []string{"COLOUR=blue", "REF=$(COLOUR)", "a.key=own", "X=blue"},
		},
		"optional sources": {
			from: []v1.EnvFromSource{fromConfigMap("gone", "", true), fromSecret("gone", "", true)},
			env: []v1.EnvVar{
				{Name: "A", ValueFrom: configMapKey("gone", "k", true)},
				{Name: "B", ValueFrom: configMapKey("settings", "k", true)},
				{Name: "C", ValueFrom: secretKey("gone", "k", true)},
				{Name: "D", ValueFrom: secretKey("login", "k", true)},
				{Name: "E", Value: "end"},
			},
			want: []string{"E=end"},
		},
		"an optional key that is missing keeps the earlier variable": {
			env:  []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", ValueFrom: configMapKey("settings", "k", true)}},
			want: []string{"A=1"},
		},
		"keys": {
			env: []v1.EnvVar{
				{Name: "A", ValueFrom: configMapKey("settings", "COLOUR", false)},
				{Name: "B", ValueFrom: secretKey("login", "PASS", false)},
				{Name: "C", Value: "$(A)/$(B)"},
			},
			want: []string{"A=red", "B=" + hidden, "C=red/" + hidden},
		},
		"a secret's bytes stay": {
			env:  []v1.EnvVar{{Name: "A", ValueFrom: secretKey("raw", "BYTES", false)}},
			want: []string{"A=\xff\xfe"},
		},
		"fields and resources": {
			env: []v1.EnvVar{
				{Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
				{
					Name:      "CPU",
					ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.cpu"}},
				},
			},
			want: []string{"IP=10.0.0.2", "CPU=4"},
		},
		"empty source": {env: []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{}}}, want: []string{"A="}},
		"file key": {
			env: []v1.EnvVar{
				{Name: "A", ValueFrom: fileKey("env", "A", false)},
				{Name: "B", ValueFrom: fileKey("env", "B", true)},
				{Name: "C", ValueFrom: fileKey("env", "EMPTY", true)},
			},
			file: envFile, want: []string{"A=" + hidden},
		},
		"relaxed names": {env: []v1.EnvVar{{Name: "a b!", Value: "1"}}, want: []string{"a b!=1"}},

		"no such ConfigMap": {
			from: []v1.EnvFromSource{fromConfigMap("gone", "", false)}, err: `configmap "gone" not found`,
		},
		"no such Secret": {from: []v1.EnvFromSource{fromSecret("gone", "", false)}, err: `secret "gone" not found`},
		"no such ConfigMap for a key": {
			env: []v1.EnvVar{{Name: "A", ValueFrom: configMapKey("gone", "k", false)}},
			err: `configmap "gone" not found`,
		},
		"no such Secret for a key": {
			env: []v1.EnvVar{{Name: "A", ValueFrom: secretKey("gone", "k", false)}}, err: `secret "gone" not found`,
		},
		"no such key": {
			env: []v1.EnvVar{{Name: "A", ValueFrom: configMapKey("settings", "k", false)}},
			err: "couldn't find key k in ConfigMap shop/settings",
		},
		"no such secret key": {
			env: []v1.EnvVar{{Name: "A", ValueFrom: secretKey("login", "k", false)}},
			err: "couldn't find key k in Secret shop/login",
		},
		"bad field": {
			env: []v1.EnvVar{{
				Name: "A", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.x"}},
			}},
			err: "unsupported fieldPath: status.x",
		},
		"bad resource": {
			env: []v1.EnvVar{{
				Name: "A", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "x"}},
			}},
			err: "unsupported container resource",
		},
		"file keys not supported": {
			env: []v1.EnvVar{{Name: "A", ValueFrom: fileKey("env", "A", false)}}, err: "fileKeyRef is not supported",
		},
		"file key missing": {
			env:  []v1.EnvVar{{Name: "A", ValueFrom: fileKey("env", "B", false)}},
			file: envFile, err: `environment variable key "B" not found in file "env"`,
		},
		"file unreadable": {
			env:  []v1.EnvVar{{Name: "A", ValueFrom: fileKey("gone", "B", true)}},
			file: envFile, err: `couldn't parse env file "gone" of volume "conf"`,
		},
		"file broken": {
			env:  []v1.EnvVar{{Name: "A", ValueFrom: fileKey("broken", "B", true)}},
			file: envFile,
			err: `couldn't parse env file "broken" of volume "conf": invalid environment variable format at line 2: ` +
				`missing '='`,
		},
		"equals sign in a name": {
			from: []v1.EnvFromSource{fromConfigMap("odd", "", false)},
			err:  `environment variable name "BAD=NAME" is not valid`,
		},
		"NUL in a value": {
			from: []v1.EnvFromSource{fromSecret("raw", "", false)},
			err:  `the value of environment variable "NUL" contains a NUL byte`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := testPod(func(p *v1.Pod) { p.Spec.Containers[0].Env, p.Spec.Containers[0].EnvFrom = tc.env, tc.from })
			before := pod.DeepCopy()
			got, err := Env(EnvInput{
				Pod: pod, Container: &pod.Spec.Containers[0], Objects: envObjects(), EnvFile: tc.file,
				Addresses:   Addresses{PodIPs: []string{"10.0.0.2"}},
				Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")},
			})
			wantError(t, err, ReasonContainer, tc.err)
			if err != nil {
				if strings.Contains(err.Error(), hidden) || strings.Contains(err.Error(), "/host/path") {
					t.Errorf("the error holds a secret: %v", err)
				}
				return
			}
			var lines []string
			for _, kv := range got {
				lines = append(lines, fmt.Sprintf("%s=%s", kv.Key, kv.Value))
			}
			if diff := cmp.Diff(tc.want, lines); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("the pod was changed: %s", diff)
			}
		})
	}
}

func TestEnvWithoutObjects(t *testing.T) {
	pod := testPod(func(p *v1.Pod) {
		p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{fromConfigMap("settings", "", false)}
	})
	_, err := Env(EnvInput{Pod: pod, Container: &pod.Spec.Containers[0]})
	wantError(t, err, ReasonContainer, `configmap "settings" not found`)
}

func TestServiceEnv(t *testing.T) {
	service := func(namespace, name, ip string, ports ...v1.ServicePort) *v1.Service {
		return &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       v1.ServiceSpec{ClusterIP: ip, Ports: ports},
		}
	}
	web := v1.ServicePort{Port: 80}
	services := []*v1.Service{
		service("default", "kubernetes", "10.96.0.1", v1.ServicePort{
			Name:     "https",
			Port:     443,
			Protocol: v1.ProtocolTCP,
		}),
		service("default", "other", "10.96.0.9", web),
		service("shop", "my-db", "fd00::5", v1.ServicePort{Name: "sql-x", Port: 5432, Protocol: v1.ProtocolUDP}, web),
		service("shop", "headless", "None", web),
		service("shop", "external", "", web),
		service("shop", "portless", "10.96.0.7"),
	}
	const master = `KUBERNETES_PORT=tcp://10.96.0.1:443
KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443
KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1
KUBERNETES_PORT_443_TCP_PORT=443
KUBERNETES_PORT_443_TCP_PROTO=tcp
KUBERNETES_SERVICE_HOST=10.96.0.1
KUBERNETES_SERVICE_PORT=443
KUBERNETES_SERVICE_PORT_HTTPS=443
`
	const db = `MY_DB_PORT=udp://[fd00::5]:5432
MY_DB_PORT_5432_UDP=udp://[fd00::5]:5432
MY_DB_PORT_5432_UDP_ADDR=fd00::5
MY_DB_PORT_5432_UDP_PORT=5432
MY_DB_PORT_5432_UDP_PROTO=udp
MY_DB_PORT_80_TCP=tcp://[fd00::5]:80
MY_DB_PORT_80_TCP_ADDR=fd00::5
MY_DB_PORT_80_TCP_PORT=80
MY_DB_PORT_80_TCP_PROTO=tcp
MY_DB_SERVICE_HOST=fd00::5
MY_DB_SERVICE_PORT=5432
MY_DB_SERVICE_PORT_SQL_X=5432
`
	tests := map[string]struct {
		links *bool
		more  []*v1.Service
		env   []v1.EnvVar
		want  string
	}{
		"default":  {want: master + db},
		"links":    {links: ptr(true), want: master + db},
		"no links": {links: ptr(false), want: master},
		"reference": {
			links: ptr(false), env: []v1.EnvVar{{Name: "A", Value: "$(KUBERNETES_SERVICE_HOST)"}},
			want: "A=10.96.0.1\n" + master,
		},
		"own variable first": {
			links: ptr(false), env: []v1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "mine"}},
			want: "KUBERNETES_SERVICE_HOST=mine\n" +
				strings.Replace(master, "KUBERNETES_SERVICE_HOST=10.96.0.1\n", "", 1),
		},
		"own service called kubernetes": {
			more: []*v1.Service{service("shop", "kubernetes", "10.96.9.9", web)},
			want: strings.NewReplacer("10.96.0.1", "10.96.9.9", "443", "80",
				"KUBERNETES_SERVICE_PORT_HTTPS=443\n", "").Replace(master) + db,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := testPod(func(p *v1.Pod) { p.Spec.EnableServiceLinks, p.Spec.Containers[0].Env = tc.links, tc.env })
			got, err := Env(EnvInput{
				Pod:       pod,
				Container: &pod.Spec.Containers[0],
				Services:  append(tc.more, services...),
			})
			wantError(t, err, "", "")
			var text strings.Builder
			for _, kv := range got {
				fmt.Fprintf(&text, "%s=%s\n", kv.Key, kv.Value)
			}
			if diff := cmp.Diff(tc.want, text.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseEnvFile(t *testing.T) {
	tests := map[string]struct {
		content, want string
		missing       bool
		err           string
	}{
		"empty":             {missing: true},
		"plain":             {content: "KEY='v'\n", want: "v"},
		"no last newline":   {content: "KEY='v'", want: "v"},
		"first wins":        {content: "KEY='a'\nKEY='b'\n", want: "a"},
		"after others":      {content: "# c\n\n  \nOTHER='x'\n\tKEY='v' # why\n", want: "v"},
		"literal":           {content: `KEY='a$(B) "c" \n #d'`, want: `a$(B) "c" \n #d`},
		"lines":             {content: "KEY='a\nb\n'\n", want: "a\nb\n"},
		"lines of another":  {content: "OTHER='a\nKEY='\nKEY='v'\n", want: "v"},
		"space makes empty": {content: "KEY= 'v'\n"},
		"carriage returns":  {content: "OTHER='x'\r\nKEY='v'\r\n", want: "v"},
		"garbage after it":  {content: "KEY='v'\n???\n", want: "v"},
		"not there":         {content: "OTHER='x'\n", missing: true},
		"no equals":         {content: "A='1'\nKEY\n", err: "line 2: missing '='"},
		"no name":           {content: "='1'\n", err: "line 1: empty variable name"},
		"space before":      {content: "KEY ='1'\n", err: "line 1: whitespace before '='"},
		"no quotes":         {content: "KEY=" + hidden + "\n", err: "line 1: value must be enclosed in single quotes"},
		"open quote": {
			content: "\nKEY='" + hidden + "\nmore\n", err: "starting at line 2: unclosed single quote",
		},
		"more after quote":   {content: "KEY='a\nb'" + hidden + "\n", err: "line 2: unexpected content"},
		"lines are counted":  {content: "A='1\n2\n3'\n\nKEY\n", err: "line 5: missing '='"},
		"space value counts": {content: "A= \nKEY\n", err: "line 2: missing '='"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok, err := ParseEnvFile(tc.content, "KEY")
			checkText(t, got, err, tc.want, tc.err)
			if err != nil && strings.Contains(err.Error(), hidden) {
				t.Errorf("the error holds a value: %v", err)
			}
			if err == nil && ok == tc.missing {
				t.Errorf("found = %v", ok)
			}
		})
	}
}

// An object that cannot be known now does not count as missing, even if it is optional.
func TestEnvOfWhatCannotBeKnownNow(t *testing.T) {
	refused := objects{err: errors.New("failed to sync secret cache: timed out waiting for the condition")}
	for name, change := range map[string]func(*v1.Container){
		"configMapRef": func(c *v1.Container) { c.EnvFrom = []v1.EnvFromSource{fromConfigMap("a", "", true)} },
		"secretRef":    func(c *v1.Container) { c.EnvFrom = []v1.EnvFromSource{fromSecret("a", "", true)} },
		"configMapKeyRef": func(c *v1.Container) {
			c.Env = []v1.EnvVar{{Name: "A", ValueFrom: configMapKey("a", "k", true)}}
		},
		"secretKeyRef": func(c *v1.Container) {
			c.Env = []v1.EnvVar{{Name: "A", ValueFrom: secretKey("a", "k", true)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testPod(func(p *v1.Pod) { change(&p.Spec.Containers[0]) })
			_, err := Env(EnvInput{Pod: pod, Container: &pod.Spec.Containers[0], Objects: refused})
			wantError(t, err, ReasonContainer, refused.err.Error())
		})
	}
}

// A short text must not take the node's memory: neither by references to references, nor by many
// references to one value.
func TestEnvIsBounded(t *testing.T) {
	const want = "the container's environment is larger than the 6 MiB that a process can have"
	big := strings.Repeat("x", 1<<20)
	doubling := []v1.EnvVar{{Name: "A0", Value: "0123456789abcdef"}}
	for i := range 60 {
		doubling = append(doubling, v1.EnvVar{Name: fmt.Sprint("A", i+1), Value: fmt.Sprintf("$(A%d)$(A%d)", i, i)})
	}
	var keys, again []v1.EnvVar
	var prefixes []v1.EnvFromSource
	for i := range 2000 {
		keys = append(keys, v1.EnvVar{Name: fmt.Sprint("K", i), ValueFrom: configMapKey("big", "key", false)})
		again = append(again, v1.EnvVar{Name: "K", ValueFrom: configMapKey("big", "key", false)})
		prefixes = append(prefixes, fromConfigMap("big", fmt.Sprint("P", i), false))
	}
	for name, c := range map[string]v1.Container{
		"references to references": {Env: doubling},
		"many references": {Env: []v1.EnvVar{
			{Name: "A", Value: big}, {Name: "B", Value: strings.Repeat("$(A)", 5000)},
		}},
		"one key many times":    {Env: keys},
		"one name many times":   {Env: again},
		"one object many times": {EnvFrom: prefixes},
	} {
		env, err := Env(EnvInput{Pod: &v1.Pod{}, Container: &c, Objects: bigObject{big}})
		if err == nil || err.Error() != want || env != nil {
			t.Errorf("%s: %d variables, and the error is %v", name, len(env), err)
		}
	}
}

// bigObject has one ConfigMap with one large value.
type bigObject struct{ value string }

func (o bigObject) ConfigMap(*v1.Pod, string) (*v1.ConfigMap, error) {
	return &v1.ConfigMap{Data: map[string]string{"key": o.value}}, nil
}

func (bigObject) Secret(*v1.Pod, string) (*v1.Secret, error) { return nil, nil }
