// Package kerneldefaults sets the kernel settings that a node of Kubernetes needs, or demands them.
//
// Purpose: the kernel must not refuse memory that is free, must kill a process rather than stop
// when memory is short, must start again after a crash, and must have enough keys for many
// containers. The settings and their values are a kubelet's. With protectKernelDefaults, an agent
// changes nothing and does not start on a node with other values.
//
// Truth owned: none; the kernel owns it. Concurrency: [Apply] is called once.
package kerneldefaults

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	utilsysctl "k8s.io/component-helpers/node/util/sysctl"
)

// Proc is the directory of the kernel's settings.
const Proc = "/proc/sys"

// setting is a setting by its path below [Proc], and the value that it should have.
type setting struct {
	name string
	want int
}

func settings() []setting {
	return []setting{
		{utilsysctl.VMOvercommitMemory, utilsysctl.VMOvercommitMemoryAlways},
		{utilsysctl.VMPanicOnOOM, utilsysctl.VMPanicOnOOMInvokeOOMKiller},
		{utilsysctl.KernelPanic, utilsysctl.KernelPanicRebootTimeout},
		{utilsysctl.KernelPanicOnOops, utilsysctl.KernelPanicOnOopsAlways},
		{utilsysctl.RootMaxKeys, utilsysctl.RootMaxKeysSetting},
		{utilsysctl.RootMaxBytes, utilsysctl.RootMaxBytesSetting},
	}
}

// Apply sets the settings beneath a directory, which is [Proc]. With demand, it changes nothing,
// and returns an error that names every setting with another value.
//
// A setting that cannot be changed is only a warning, unlike on a kubelet, which does not start
// then: in a container, and on many small machines, /proc/sys is read-only, and pods run all the
// same.
func Apply(dir string, demand bool, log *slog.Logger) error {
	var wrong []error
	for _, s := range settings() {
		have, err := s.read(dir)
		switch {
		case err == nil && have == s.want:
		case demand && err != nil:
			wrong = append(wrong, err)
		case demand:
			wrong = append(wrong, fmt.Errorf("invalid kernel flag: %s, expected value: %d, actual value: %d", s.name, s.want,
				have))
		case err == nil:
			if err = s.write(dir); err == nil {
				log.Info("kernel setting changed", "setting", s.name, "from", have, "to", s.want)
				continue
			}
			fallthrough
		default:
			log.Warn("kernel setting stays as it is: set it in a file of /etc/sysctl.d", "setting", s.name,
				"value", s.want, "err", err)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("protectKernelDefaults: set these in a file of /etc/sysctl.d: %w", errors.Join(wrong...))
	}
	return nil
}

func (s setting) read(dir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dir, s.name))
	if err != nil {
		return 0, fmt.Errorf("reading a kernel setting: %w", err)
	}
	value, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("reading kernel setting %s: %w", s.name, err)
	}
	return value, nil
}

func (s setting) write(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, s.name), []byte(strconv.Itoa(s.want)), 0); err != nil {
		return fmt.Errorf("setting a kernel setting: %w", err)
	}
	return nil
}
