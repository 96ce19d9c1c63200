package credentials

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	credentialproviderv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/berthd/berth/internal/head"
)

const (
	// pluginTimeout limits one run of a plugin. It is the kubelet's.
	pluginTimeout = time.Minute
	// pluginEnd is how long to wait for a plugin's output after the plugin has ended: a child
	// process may hold the output open.
	pluginEnd = 2 * time.Second
	// maxAnswer limits a plugin's output, and maxErrorText what is quoted of its errors, in bytes.
	// An answer has a few logins.
	maxAnswer, maxErrorText = 1 << 20, 1 << 10
)

// The kinds of the plugins' protocol.
const kindRequest, kindResponse = "CredentialProviderRequest", "CredentialProviderResponse"

// execution runs a plugin's program.
type execution struct {
	program string
	config  kubeletconfigv1.CredentialProvider
	environ func() []string
}

// run asks the program for the image's credentials: it writes the request to the program's input
// and reads the answer from its output. The returned error contains what the program wrote to
// standard error, without the token and the values of the environment in the plugin's config.
func (e execution) run(ctx context.Context, q query) (*credentialproviderv1.CredentialProviderResponse, error) {
	request, err := json.Marshal(requestOf(e.config.APIVersion, q))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pluginTimeout,
		fmt.Errorf("it gave no answer within %s", pluginTimeout))
	defer cancel()
	output, stderr := &head.Buffer{Most: maxAnswer}, &complaint{}
	cmd := exec.CommandContext(ctx, e.program, e.config.Args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(append(request, '\n')), output, stderr
	cmd.Env = e.environ()
	stderr.hide(q.token)
	for _, v := range e.config.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
		stderr.hide(v.Value)
	}
	// The program and its children are one process group, which is killed as a whole.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = pluginEnd
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	// it succeeded, and left a child behind that holds its output open
	case errors.Is(err, exec.ErrWaitDelay):
		_ = cmd.Cancel()
		err = nil
	}
	if err != nil {
		if text := stderr.text(); text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return nil, err
	}
	if output.Cut {
		return nil, fmt.Errorf("its answer is longer than %d bytes", maxAnswer)
	}
	return e.decode(output.Data)
}

// decode decodes an answer. Its errors quote nothing of the answer.
func (e execution) decode(data []byte) (*credentialproviderv1.CredentialProviderResponse, error) {
	var response credentialproviderv1.CredentialProviderResponse
	if err := json.Unmarshal(data, &response); err != nil {
		return nil, fmt.Errorf("its answer: %w", quiet(err))
	}
	if response.Kind != kindResponse {
		return nil, errors.New("its answer is not a " + kindResponse)
	}
	if response.APIVersion != e.config.APIVersion {
		return nil, fmt.Errorf("its answer's apiVersion is not the request's, %s", e.config.APIVersion)
	}
	return &response, nil
}

// complaint keeps the beginning of what a program writes to standard error.
type complaint struct {
	head.Buffer

	private []string
}

// hide adds a text that must not be quoted. What is kept is longer by the length of the longest: a
// text that is cut would not be found.
func (c *complaint) hide(private string) {
	c.private = append(c.private, private)
	c.Most = max(c.Most, maxErrorText+len(private))
}

// text returns the beginning without the private texts.
func (c *complaint) text() string {
	text := scrub(string(c.Data), c.private)
	if c.Cut { // its end may be the beginning of a private text
		text = text[:max(0, len(text)-(c.Most-maxErrorText))]
	}
	return strings.TrimSpace(text[:min(len(text), maxErrorText)])
}
