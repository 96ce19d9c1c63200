package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// debugOptions are the flags of berth debug.
type debugOptions struct {
	streamOptions
	image, target, pull, profile string
	env                          []string
}

func newDebug() *cobra.Command {
	o := &debugOptions{}
	cmd := &cobra.Command{
		Use:   "debug POD[/CONTAINER] --image IMAGE [-it] [-- COMMAND [ARG...]]",
		Short: "Put a container with tools into a running pod",
		Long: `Put a container with tools into a running pod: an ephemeral container. The container shares the network of
the pod, and with /CONTAINER or --target the processes of one container of the pod.

The container starts once and never again. It does not count for the readiness or the end of the pod. It stays in
the pod until the pod is deleted, also over restarts of the agent. The manifest of the pod does not change.

With -it the container uses your terminal. "berth attach -it POD -c NAME" connects again while the container runs.
With -i the exit code is that of the container. Without -t, the end of your input is also the end of its input.`,
		Example: `  berth debug -it web --image busybox:1.36                  # a shell in the pod's network
  berth debug -it web/web --image busybox:1.36              # one that sees the processes of the container web
  berth debug web --image busybox:1.36 -- netstat -tn       # without a terminal; see "berth logs"`,
		Args:              somePod,
		ValidArgsFunction: completeContainerPaths(&o.conn, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) > 1 && at != 1 {
				return wrongly("only one POD can be given; a command comes behind --: berth debug POD --image IMAGE " +
					"-- COMMAND [ARG...]")
			}
			return o.debug(cmd, args[0], args[1:])
		},
	}
	o.conn.flag(cmd)
	namespaceFlag(cmd, &o.namespace)
	f := cmd.Flags()
	f.StringVar(&o.image, "image", "", "the container's image")
	_ = cmd.MarkFlagRequired("image")
	f.StringVarP(&o.container, "container", "c", "", "the container's name (default a new one)")
	f.StringVar(&o.target, "target", "", "the container of the pod whose processes it sees")
	f.StringVar(&o.pull, "image-pull-policy", "", "Always, IfNotPresent or Never (default by the image's tag)")
	f.StringArrayVar(&o.env, "env", nil, "an environment variable, NAME=VALUE; may be given again")
	f.StringVar(&o.profile, "profile", profileGeneral, "what the container may do: "+strings.Join(profiles(), ", "))
	f.BoolVarP(&o.stdin, "stdin", "i", false, "connect standard input with the container")
	f.BoolVarP(&o.tty, "tty", "t", false, "the container gets a terminal")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print only what the container prints")
	_ = cmd.RegisterFlagCompletionFunc("profile",
		cobra.FixedCompletions(profiles(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("target", completeContainers)
	return cmd
}

// debug adds the container, and connects to it with -i.
func (o *debugOptions) debug(cmd *cobra.Command, arg string, command []string) error {
	ctx, c := cmd.Context(), o.conn.client()
	defer c.Close()
	pod, target, err := findContainer(ctx, c, arg, o.namespace, o.target)
	if err != nil {
		return err
	}
	o.target = target
	given := o.container != ""
	if !given {
		o.container = newDebugName()
	}
	if _, ok := terminalOf(cmd.InOrStdin()); o.stdin && o.tty && !ok {
		fmt.Fprintln(cmd.ErrOrStderr(), noTerminal)
		// a container with a terminal would wait for input after the end of this input
		o.tty = false
	}
	container, err := o.spec(command)
	if err != nil {
		return err
	}
	if err := c.AddEphemeral(ctx, pod.Namespace, pod.Name, container); err != nil {
		return err
	}
	if !given {
		o.say(cmd.ErrOrStderr(), "The container's name is %s.", o.container)
	}
	if !o.stdin {
		return nil
	}
	return (&debugSession{
		debugOptions: o,
		client:       c,
		pod:          pod,
		out:          cmd.OutOrStdout(),
		errOut:       cmd.ErrOrStderr(),
	}).connect(cmd)
}

func (o *debugOptions) say(w io.Writer, format string, args ...any) {
	if !o.quiet {
		fmt.Fprintf(w, format+"\n", args...)
	}
}

// newDebugName returns a name in kubectl's form, with the letters of Kubernetes' generated names
// (no vowels).
func newDebugName() string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	name := make([]byte, 5)
	for i := range name {
		name[i] = letters[rand.IntN(len(letters))] //nolint:gosec // no secret
	}
	return "debugger-" + string(name)
}

// spec returns the container.
func (o *debugOptions) spec(command []string) (*v1.EphemeralContainer, error) {
	c := &v1.EphemeralContainer{TargetContainerName: o.target, EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name:                     o.container,
		Image:                    o.image,
		Command:                  command,
		ImagePullPolicy:          v1.PullPolicy(o.pull),
		Stdin:                    o.stdin,
		StdinOnce:                o.stdin && !o.tty,
		TTY:                      o.tty,
		TerminationMessagePolicy: v1.TerminationMessageReadFile,
	}}
	for _, e := range o.env {
		name, value, ok := strings.Cut(e, "=")
		if !ok {
			return nil, wrongly("--env %s: want NAME=VALUE", e)
		}
		c.Env = append(c.Env, v1.EnvVar{Name: name, Value: value})
	}
	security, ok := profile(o.profile)
	if !ok {
		return nil, wrongly("--profile %s is not known: use %s", o.profile, strings.Join(profiles(), ", "))
	}
	c.SecurityContext = security
	return c, nil
}

// The profiles, with kubectl's names.
const (
	profileGeneral    = "general"
	profileBaseline   = "baseline"
	profileRestricted = "restricted"
	profileNetAdmin   = "netadmin"
	profileSysAdmin   = "sysadmin"
)

func profiles() []string {
	return []string{profileGeneral, profileBaseline, profileRestricted, profileNetAdmin, profileSysAdmin}
}

// profile returns the security context of a profile, or false if there is no such profile. To look
// at another container's files and memory a container needs SYS_PTRACE.
func profile(name string) (*v1.SecurityContext, bool) {
	add := func(capabilities ...v1.Capability) *v1.SecurityContext {
		return &v1.SecurityContext{Capabilities: &v1.Capabilities{Add: capabilities}}
	}
	switch name {
	case profileGeneral:
		return add("SYS_PTRACE"), true
	case profileBaseline:
		return nil, true
	case profileRestricted:
		return &v1.SecurityContext{
			Capabilities:             &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
			RunAsNonRoot:             ptr.To(true),
			AllowPrivilegeEscalation: ptr.To(false),
			SeccompProfile:           &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
		}, true
	case profileNetAdmin:
		return add("NET_ADMIN", "NET_RAW"), true
	case profileSysAdmin:
		return &v1.SecurityContext{Privileged: ptr.To(true)}, true
	}
	return nil, false
}
