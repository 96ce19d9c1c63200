package images

import "strings"

// answer is an answer in the labels of the kubelet's metric of ensured images.
type answer string

// The answers.
const (
	yes     answer = "true"
	no      answer = "false"
	unknown answer = "unknown"
)

func answerOf(is bool) answer {
	if is {
		return yes
	}
	return no
}

// ensured counts a decision about a container's image: it is there and may be used, it must be
// pulled, or the container cannot have it. A kubelet decides again in each sync; here only a new
// decision counts.
func (m *Manager) ensured(req Request, present, pull answer) {
	name, _ := FullName(req.Image)
	m.deps.Ensured(strings.ToLower(string(policyOf(req.Policy, name))), string(present), string(pull))
}
