package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/fake"
)

// command does what a line of a script says, with the line's arguments.
type command func(args []string) error

func (s *script) commands() map[string]command {
	rt := s.m.runtime
	return map[string]command{
		"manifest":         s.manifest,
		"remove":           one(func(name string) error { s.m.manifests.remove(name); return nil }),
		"source":           one(s.source),
		"start-agent":      none(s.m.start),
		"stop-agent":       none(s.m.stop),
		"kill-agent":       none(s.m.kill),
		"restart-agent":    none(func() { s.m.stop(); s.m.start() }),
		"advance":          one(advance),
		"drain":            s.drain,
		"undrain":          trying(s.undrain),
		"shutdown":         trying(s.shutdown),
		"restart":          s.restart,
		"stop":             s.stop,
		"start":            s.startPod,
		"exit":             s.exit,
		"oom":              one(rt.OOMKill),
		"lose-sandbox":     one(func(pod string) error { return rt.LoseSandbox(full(pod)) }),
		"forget-sandbox":   one(func(pod string) error { return rt.ForgetSandbox(full(pod)) }),
		"forget-container": one(s.forgetContainer),
		"reboot":           none(rt.Reboot),
		"runtime-down":     none(rt.Stop),
		"runtime-up":       none(rt.Start),
		"image":            s.image,
		"behave":           s.behave,
		"exec":             s.exec,
		"debug":            s.debug,
		"fault":            s.fault,
		"clear-faults":     none(rt.ClearFaults),
		"reset-calls":      none(rt.ResetCalls),
		"expect":           s.expect,
		"eventually":       s.eventually,
		"always":           s.always,
	}
}

func (s *script) do(words []string) error {
	c, ok := s.commands()[words[0]]
	if !ok {
		return errors.New("no such command")
	}
	return c(words[1:])
}

var errArgs = errors.New("wrong arguments: see the package's documentation")

func none(f func()) command {
	return func(args []string) error {
		if len(args) != 0 {
			return errArgs
		}
		f()
		return nil
	}
}

// trying is the command for a function that may fail and takes no arguments.
func trying(f func() error) command {
	return func(args []string) error {
		if len(args) != 0 {
			return errArgs
		}
		return f()
	}
}

func one(f func(string) error) command {
	return func(args []string) error {
		if len(args) != 1 {
			return errArgs
		}
		return f(args[0])
	}
}

// full returns a pod's name on the node.
func full(pod string) string { return pod + "-" + nodeName }

func advance(d string) error {
	t, err := time.ParseDuration(d)
	if err == nil {
		time.Sleep(t) // in the bubble's time
	}
	return err
}

func (s *script) manifest(args []string) error {
	if len(args) != 1 && (len(args) != 3 || args[1] != "as") {
		return errArgs
	}
	data, err := s.data(args[0])
	if err != nil {
		return err
	}
	data = bytes.ReplaceAll(data, []byte("ALLCPUS"), []byte(strconv.FormatInt(s.m.cpus, 10)))
	return s.m.manifests.put(args[len(args)-1], data)
}

func (s *script) source(what string) error {
	s.m.sourceless = what == "none"
	s.m.manifests.setSilent(what == "silent")
	return nil
}

func (s *script) exit(args []string) error {
	if len(args) != 2 {
		return errArgs
	}
	code, err := strconv.ParseInt(args[1], 10, 32)
	if err != nil {
		return err
	}
	return s.m.runtime.Exit(args[0], int32(code))
}

// debug adds an ephemeral container to a pod, as "berth debug" does. A last argument "refused"
// wants the agent to say no.
func (s *script) debug(args []string) error {
	if len(args) < 2 || s.m.agent == nil {
		return errArgs
	}
	p := s.m.pod(args[0])
	if p == nil {
		return errors.New("there is no such pod")
	}
	c := v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: args[1], Image: "tools"}}
	refused := false
	for _, a := range args[2:] {
		switch key, value, _ := strings.Cut(a, "="); key {
		case "target":
			c.TargetContainerName = value
		case "image":
			c.Image = value
		case "refused":
			refused = true
		default:
			return errArgs
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := s.m.agent.agent.AddEphemeral(ctx, p.UID, &c)
	if refused && err == nil {
		return errors.New("it was added")
	}
	if refused {
		return nil
	}
	return err
}

// forgetContainer removes the record of a container that has ended, as an administrator may do.
func (s *script) forgetContainer(name string) error {
	c := s.m.runtime.Container(name)
	if c == nil || c.State != runtimeapi.ContainerState_CONTAINER_EXITED {
		return errors.New("no container of that name has ended")
	}
	return s.m.runtime.RemoveContainer(context.Background(), c.Id)
}

func (s *script) image(args []string) error {
	if len(args) < 2 {
		return errArgs
	}
	i := fake.Image{Name: args[0]}
	switch args[1] {
	case "present":
		i.Present = true
	case "absent": // the image can be pulled
	case "missing":
		i.PullErr = errdefs.ErrNotFound.WithMessage("failed to resolve image: not found")
	case "broken":
		i.PullErr = errors.New("unexpected EOF")
	case "slow":
		d, err := time.ParseDuration(args[len(args)-1])
		if err != nil {
			return err
		}
		i.PullTime = d
	default:
		return errArgs
	}
	s.m.runtime.SetImage(i)
	return nil
}

// behave sets what the attempts of a container do.
func (s *script) behave(args []string) error {
	if len(args) < 2 {
		return errArgs
	}
	list := make([]fake.Behavior, 0, len(args)-1)
	for _, a := range args[1:] {
		b, err := behavior(a)
		if err != nil {
			return err
		}
		b.Exec = s.execute
		list = append(list, b)
	}
	s.m.runtime.Script(args[0], list...)
	return nil
}

// behavior reads what one attempt does.
func behavior(text string) (b fake.Behavior, err error) {
	what, after, timed := strings.Cut(text, "@")
	var d time.Duration
	if timed {
		if d, err = time.ParseDuration(after); err != nil {
			return b, err
		}
	}
	what, arg, _ := strings.Cut(what, ":")
	code, codeErr := strconv.ParseInt(arg, 10, 32)
	switch {
	case what == "run":
	case what == "oom":
		b.Exit = &fake.Exit{OOM: true, After: d}
	case what == "slowstart":
		b.StartDelay = d
	case what == "starterr":
		b.StartErr = errors.New("exec format error")
	case what == "term" && arg == "ignore":
		b.Term.Ignore = true
	case what == "term" && codeErr == nil:
		b.Term = fake.Term{Code: int32(code), After: d}
	case what == "exit" && codeErr == nil:
		b.Exit = &fake.Exit{Code: int32(code), After: d}
	default:
		return b, fmt.Errorf("no such behavior: %s", text)
	}
	return b, nil
}

func (s *script) exec(args []string) error {
	if len(args) != 2 && (len(args) != 4 || args[2] != "after") {
		return errArgs
	}
	code, err := strconv.ParseInt(args[1], 10, 32)
	if err != nil {
		return err
	}
	r := fake.ExecResult{Code: int32(code)}
	if len(args) == 4 {
		if r.After, err = time.ParseDuration(args[3]); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.execs[args[0]] = r
	return nil
}

// execute answers a command in a container.
func (s *script) execute(cmd []string) fake.ExecResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.execs[cmd[0]]
}

func (s *script) fault(args []string) error {
	if len(args) < 2 {
		return errArgs
	}
	f := fake.Fault{Method: args[0]}
	for _, a := range args[1:] {
		key, value, _ := strings.Cut(a, "=")
		var err error
		switch key {
		case "after":
			f.After = true
		case "hang":
			f.Hang = true
		case "of":
			f.Match = func(c fake.Call) bool {
				return c.Container == value || c.Container == "" && c.Pod.Name == full(value)
			}
		case "nth":
			f.Nth, err = strconv.Atoi(value)
		case "delay":
			f.Delay, err = time.ParseDuration(value)
		case "err":
			f.Err = errorOf(value)
		default:
			err = errArgs
		}
		if err != nil {
			return err
		}
	}
	s.m.runtime.Inject(f)
	return nil
}

func errorOf(class string) error {
	switch class {
	case "unavailable":
		return errdefs.ErrUnavailable.WithMessage("connection refused")
	case "deadline":
		return context.DeadlineExceeded
	default:
		return errdefs.ErrUnknown.WithMessage(class)
	}
}

func (s *script) eventually(args []string) error {
	d, rest, err := timed(args)
	if err != nil {
		return err
	}
	return until(d, func() error { return s.expect(rest) })
}

func (s *script) always(args []string) error {
	d, rest, err := timed(args)
	if err != nil {
		return err
	}
	var failed error
	_ = until(d, func() error {
		if failed = s.expect(rest); failed != nil {
			return nil //nolint:nilerr // the first failure ends the waiting, and is returned below
		}
		return errors.New("not over yet")
	})
	return failed
}

func timed(args []string) (d time.Duration, rest []string, err error) {
	if len(args) < 3 || args[1] != "expect" {
		return 0, nil, errArgs
	}
	d, err = time.ParseDuration(args[0])
	if d > limit {
		err = errArgs
	}
	return d, args[2:], err
}
