package server

import (
	"strings"
	"testing"
)

// TestAdmission asks which pods would be refused, also with more pods than a form has room for.
func TestAdmission(t *testing.T) {
	r := start(t, &fixture{})
	many := strings.Repeat(`{"metadata": {"namespace": "default", "name": "small", "uid": "s"}},`, 2000)
	const big = `{"metadata": {"namespace": "default", "name": "big", "uid": "b"}}`
	for _, tc := range []struct {
		body string
		code int
		want string
	}{
		{`{"pods": [` + many + big + `]}`, 200, `"name":"big","reason":"OutOfcpu","message":"too big (by far)"`},
		{`{"pods": [` + big + `], "leaving": ["default/big"]}`, 200, `"refused":[]`},
		{`{"pods": []}`, 200, `"refused":[]`},
		{`{`, 400, "reading the pods"},
		{strings.Repeat(" ", maxPodsBody+1), 413, "more than 8388608 bytes"},
	} {
		code, text := r.ask(t, "POST", "/berth/v1/admission", strings.NewReader(tc.body))
		if code != tc.code || !strings.Contains(text, tc.want) || strings.Contains(text, "small") {
			t.Errorf("%.60s: %d %.300q, want %d %q", tc.body, code, text, tc.code, tc.want)
		}
	}
}
