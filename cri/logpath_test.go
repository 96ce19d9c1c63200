package cri_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/cri"
)

func TestLogPaths(t *testing.T) {
	pod := cri.PodID{UID: "u-1", Namespace: "shop", Name: "web-0"}
	for _, c := range []struct{ got, want string }{
		{cri.PodLogDir("/var/log/pods", pod), "/var/log/pods/shop_web-0_u-1"},
		{cri.ContainerLogPath("app", 12), "app/12.log"},
		{
			cri.LogSymlink("/var/log/containers", pod, "app", "0123456789ab"),
			"/var/log/containers/web-0_shop_app-0123456789ab.log",
		},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	pod.Name = strings.Repeat("n", 253)
	link := filepath.Base(cri.LogSymlink("/l", pod, "app", "0123456789ab"))
	if want := strings.Repeat("n", 251) + ".log"; link != want {
		t.Errorf("a long link is %q, want %q", link, want)
	}
}

func TestParsePodLogDir(t *testing.T) {
	for name, want := range map[string]cri.PodID{
		"shop_web-0_u-1": {UID: "u-1", Namespace: "shop", Name: "web-0"},
		"shop_web_u_2":   {UID: "u_2", Namespace: "shop", Name: "web"},
		"lost+found":     {},
		"":               {},
		"a_b":            {},
		"a__c":           {},
		"_b_c":           {},
		"a_b_":           {},
		"a_.._c":         {},
		"a_b_c/d":        {},
		"a_b_..":         {},
	} {
		got, ok := cri.ParsePodLogDir(name)
		if got != want || ok != (want != cri.PodID{}) {
			t.Errorf("ParsePodLogDir(%q) = %v, %v", name, got, ok)
		}
	}
}

func TestParseContainerLog(t *testing.T) {
	for name, want := range map[string]int{
		"0.log":                    0,
		"17.log":                   17,
		"3.log.20260101-010203":    3,
		"3.log.20260101-010203.gz": 3,
		"3.log.tmp":                3,
		"log":                      -1,
		".log":                     -1,
		"x.log":                    -1,
		"-1.log":                   -1,
		"+1.log":                   -1,
		"1.logs":                   -1,
		"2147483648.log":           -1,
		"1.2.log":                  -1,
		"":                         -1,
	} {
		got, ok := cri.ParseContainerLog(name)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("ParseContainerLog(%q) = %d, %v, want %d", name, got, ok, want)
		}
	}
}

func TestParseLogSymlink(t *testing.T) {
	for name, want := range map[string]string{
		"web-0_shop_app-0123456789ab.log": "0123456789ab",
		"web-0_shop_app-01234.log":        "",
		"web-0_shop_app-0123456789ab":     "",
		"0123456789ab.log":                "",
		".log":                            "",
	} {
		if got, ok := cri.ParseLogSymlink(name); got != want || ok != (want != "") {
			t.Errorf("ParseLogSymlink(%q) = %q, %v", name, got, ok)
		}
	}
}
