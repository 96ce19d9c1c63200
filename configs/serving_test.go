package configs

import (
	"strings"
	"testing"
)

func TestServesAPI(t *testing.T) {
	const x509 = "authentication: {x509: {clientCAFile: /ca}}\n"
	for name, tc := range map[string]struct {
		file, flags string
		serves, all bool
		warning     string
	}{
		"a node of a cluster": {"", "--kubeconfig=/k", true, false, ""},
		"a node of a cluster without a server": {
			"enableServer: false\nport: 10350\n", "--kubeconfig=/k", false, false,
			"port: no effect: enableServer is false",
		},
		"a node of a cluster that asks nobody": {
			"authorization: {mode: AlwaysAllow}\n", "--kubeconfig=/k", true, true, "",
		},
		"a node alone": {"", "", false, true, ""},
		"a node alone with a cluster's file": {
			x509 + "authorization: {mode: Webhook}\n", "", false, false,
			"authentication: no effect: without --kubeconfig the API is only served",
		},
		"a node alone with a port":        {x509 + "port: 10350\n", "", true, true, ""},
		"a node alone with an address":    {x509 + "address: 127.0.0.1\n", "", true, true, ""},
		"a node alone with a port's flag": {x509, "--port=10350", true, true, ""},
		"a node alone that asks somebody": {
			x509 + "port: 10350\nauthorization: {mode: Webhook}\n", "", true, false, "",
		},
		"a node alone where nobody is known": {
			"port: 10350\n", "", false, true,
			"port: no effect: without --kubeconfig nobody can be known but by a certificate",
		},
		"a node alone that is open to all": {
			"port: 10350\nauthentication: {anonymous: {enabled: true}}\nauthorization: {mode: AlwaysAllow}\n", "", true,
			true, "",
		},
		"the read-only port has that address, too": {
			"address: 127.0.0.2\nreadOnlyPort: 10255\nenableServer: false\n", "", false, true, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := node{file: header + tc.file}
			if tc.flags != "" {
				n.args = []string{tc.flags}
			}
			c, warnings, err := n.load(t)
			if err != "" {
				t.Fatal(err)
			}
			if c.ServesAPI() != tc.serves || c.AllowsAll() != tc.all {
				t.Errorf("serves %t, allows all %t", c.ServesAPI(), c.AllowsAll())
			}
			if all := strings.Join(warnings, "\n"); (tc.warning == "") != (all == "") ||
				!strings.Contains(all, tc.warning) {
				t.Errorf("warnings:\n%s\nwant %q", all, tc.warning)
			}
		})
	}
}
