package configs

import (
	"strings"
	"testing"
)

func TestLogBoundsFollowTheSizeOfLogs(t *testing.T) {
	for name, c := range map[string]struct{ file, container, node string }{
		"stock":            {"", "100Mi", "20%"},
		"larger logs":      {header + "containerLogMaxSize: 50Mi\ncontainerLogMaxFiles: 10\n", "1000Mi", "20%"},
		"decimal":          {header + "containerLogMaxSize: 1M\n", "10M", "20%"},
		"no rotation":      {header + "containerLogMaxSize: \"-1\"\n", "100Mi", "20%"},
		"said by the user": {berthHeader + "logs: {maxContainerSize: 30Mi, maxNodeSize: 2Gi}\n", "30Mi", "2Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			got, warnings, err := node{file: c.file}.load(t)
			if err != "" || len(warnings) > 0 {
				t.Fatal(err, warnings)
			}
			if l := got.Berth.Logs; l.MaxContainerSize != c.container || l.MaxNodeSize != c.node {
				t.Errorf("got %+v", l)
			}
		})
	}
}

func TestWrongLogSettings(t *testing.T) {
	for text, want := range map[string]string{
		header +
			"containerLogMaxSize: big\n": `containerLogMaxSize: "big" is not a quantity such as 10Mi`,
		header +
			"containerLogMaxSize: \"1.5\"\n": `containerLogMaxSize: "1.5" is not a whole number of bytes`,
		header + "containerLogMaxFiles: 1\n":                  "containerLogMaxFiles: 1 must be 2 or more",
		header + "containerLogMaxWorkers: 0\n":                "containerLogMaxWorkers: 0 must be 1 or more",
		header + "containerLogMonitorInterval: 2s\n":          "containerLogMonitorInterval: 2s must be 3s or more",
		berthHeader + "logs: {maxContainerSize: 1Ki}\n":       `logs.maxContainerSize: "1Ki" must be 64Ki or more`,
		berthHeader + "logs: {maxContainerSize: 10%}\n":       `logs.maxContainerSize: "10%" is not a quantity`,
		berthHeader + "logs: {maxNodeSize: 120%}\n":           `logs.maxNodeSize: "120%" is not a percentage`,
		berthHeader + "logs: {maxNodeSize: \"-1\"}\n":         `logs.maxNodeSize: "-1" must not be negative`,
		berthHeader + "logs: {maxNodeSize: 100}\n":            "logs.maxNodeSize: ",
		berthHeader + "logs: {maxNodeSize: \"65535\"}\n":      `logs.maxNodeSize: "65535" must be 64Ki or more`,
		berthHeader + "logs: {maxContainerSize: \"65535\"}\n": `logs.maxContainerSize: "65535" must be 64Ki or more`,
	} {
		if _, _, err := (node{file: text}).load(t); !strings.Contains(err, want) {
			t.Errorf("%q: got error %q, want %q", text, err, want)
		}
	}
}
