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

func TestAgentLogSettings(t *testing.T) {
	const alpha = "featureGates: {LoggingAlphaOptions: true}\n"
	for _, c := range []struct{ text, want string }{
		{"logging: {format: xml}\n", `logging.format: "xml" is not supported`},
		{"logging: {format: json, verbosity: 2147483647}\n", ""},
		{"logging: {verbosity: 2147483648}\n", "logging.verbosity: 2147483648 must be 2147483647 or less"},
		{"logging: {flushFrequency: -1s}\n", "logging.flushFrequency: -1s must be greater than zero"},
		{"logging: {vmodule: [{filePattern: a*, verbosity: 3}]}\n", ""},
		{"logging: {format: json, vmodule: [{filePattern: a}]}\n", "logging.vmodule: only format text"},
		{"logging: {vmodule: [{verbosity: 3}]}\n", "logging.vmodule[0].filePattern: must not be empty"},
		{"logging: {vmodule: [{filePattern: 'a=b'}]}\n", `"a=b" must have no equals sign and no comma`},
		{
			"logging: {vmodule: [{filePattern: a, verbosity: 2147483648}]}\n",
			"logging.vmodule[0].verbosity: 2147483648",
		},
		{
			"logging: {options: {text: {splitStream: true}}}\n",
			"logging.options.text.splitStream: needs the feature gate",
		},
		{
			"logging: {options: {json: {infoBufferSize: 1Ki}}}\n",
			"logging.options.json.infoBufferSize: needs the feature gate",
		},
		{alpha + "logging: {options: {text: {splitStream: true, infoBufferSize: 1Ki}}}\n", ""},
		{
			"featureGates: {LoggingBetaOptions: false}\nlogging: {format: json}\n",
			`"json" needs the feature gate LoggingBeta`,
		},
	} {
		_, warnings, err := node{file: header + c.text}.load(t)
		if c.want == "" && (err != "" || len(warnings) > 0) || !strings.Contains(err, c.want) {
			t.Errorf("%q: got error %q and warnings %v, want %q", c.text, err, warnings, c.want)
		}
	}
}
