package cri

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// These labels identify a sandbox or a container. They are the kubelet's
// (k8s.io/kubelet/pkg/types), so that either agent adopts the other's pods, and crictl, nerdctl and
// cAdvisor find them.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
)

// These annotations of a container are what an agent must know to stop or restart the container
// without the pod's spec. They are the kubelet's (pkg/kubelet/kuberuntime, release 1.36).
const (
	AnnotationHash                     = "io.kubernetes.container.hash"
	AnnotationRestartCount             = "io.kubernetes.container.restartCount"
	AnnotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPreStopHandler           = "io.kubernetes.container.preStopHandler"
	AnnotationPorts                    = "io.kubernetes.container.ports"
	AnnotationTerminationGracePeriod   = "io.kubernetes.pod.terminationGracePeriod"
	AnnotationDeletionGracePeriod      = "io.kubernetes.pod.deletionGracePeriod"
)

// maxGraceSeconds is the longest grace period that a time.Duration can hold.
const maxGraceSeconds = math.MaxInt64 / int64(time.Second)

// ErrUnmanaged is what [ParseContainer] returns for an unmanaged container: one without a pod's
// identity.
var ErrUnmanaged = errors.New("not a pod's container")

// PodID is a pod's identity as the runtime keeps it. It is comparable.
type PodID struct {
	UID       types.UID
	Namespace string
	Name      string
}

// IDOf returns the identity of pod.
func IDOf(pod *v1.Pod) PodID {
	return PodID{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}
}

// String returns namespace/name(uid), for logs.
func (id PodID) String() string {
	return fmt.Sprintf("%s/%s(%s)", id.Namespace, id.Name, id.UID)
}

// safe reports whether every part of id can be one element of a file path. The parts of a validated
// pod always can.
func (id PodID) safe() bool {
	return safeElement(string(id.UID)) && safeElement(id.Namespace) && safeElement(id.Name)
}

// ContainerID is what a container's labels and annotations say about the container.
type ContainerID struct {
	Pod  PodID
	Name string
	// Hash is [ContainerHash] of the container's spec at its creation. Empty if the annotation is
	// missing or malformed.
	Hash string
	// RestartCount is at least 0 and fits an int32. It is 0 if the annotation is missing or
	// malformed.
	RestartCount             int
	TerminationMessagePath   string
	TerminationMessagePolicy v1.TerminationMessagePolicy
	// PreStop is nil if there is no hook.
	PreStop *v1.LifecycleHandler
	Ports   []v1.ContainerPort
	// GracePeriod is the pod's terminationGracePeriodSeconds, nil if it is unknown. It is never
	// negative and fits a time.Duration.
	GracePeriod *int64
	// DeletionGracePeriod is the pod's deletionGracePeriodSeconds at the container's creation. Its
	// limits are those of GracePeriod.
	DeletionGracePeriod *int64
}

// SandboxLabels returns the labels of pod's sandbox: the pod's own, overridden by its identity.
func SandboxLabels(pod *v1.Pod) map[string]string {
	labels := make(map[string]string, len(pod.Labels)+3)
	maps.Copy(labels, pod.Labels)
	setIdentity(labels, pod)
	return labels
}

// SandboxAnnotations returns the annotations of pod's sandbox: those of the pod's own whose keys
// match one of the patterns, in which * and ? match anything but a slash. A pattern that cannot be
// parsed matches nothing. Runtimes, and what they start, take annotations as orders
// (CVE-2026-53492), and whoever may make pods chooses the pods' annotations.
func SandboxAnnotations(pod *v1.Pod, patterns []string) map[string]string {
	out := map[string]string{}
	for key, value := range pod.Annotations {
		if slices.ContainsFunc(patterns, func(pattern string) bool {
			ok, err := path.Match(pattern, key)
			return ok && err == nil
		}) {
			out[key] = value
		}
	}
	return out
}

// ContainerLabels returns the labels of the container called name of pod. The pod's own labels are
// not among them.
func ContainerLabels(pod *v1.Pod, name string) map[string]string {
	labels := make(map[string]string, 4)
	setIdentity(labels, pod)
	labels[LabelContainerName] = name
	return labels
}

// ContainerAnnotations returns the annotations of a container of pod that was restarted
// restartCount times. The caller adds the annotations of device plugins, which these override.
func ContainerAnnotations(pod *v1.Pod, container *v1.Container, restartCount int) map[string]string {
	annotations := map[string]string{
		AnnotationHash:                     ContainerHash(container),
		AnnotationRestartCount:             strconv.Itoa(restartCount),
		AnnotationTerminationMessagePath:   container.TerminationMessagePath,
		AnnotationTerminationMessagePolicy: string(container.TerminationMessagePolicy),
	}
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		annotations[AnnotationDeletionGracePeriod] = strconv.FormatInt(*s, 10)
	}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		annotations[AnnotationTerminationGracePeriod] = strconv.FormatInt(*s, 10)
	}
	if l := container.Lifecycle; l != nil && l.PreStop != nil {
		setJSON(annotations, AnnotationPreStopHandler, l.PreStop)
	}
	if len(container.Ports) > 0 {
		setJSON(annotations, AnnotationPorts, container.Ports)
	}
	return annotations
}

// ParseSandbox reads the pod's identity from a sandbox's labels. ok is false if a part is missing
// or cannot be in a file path: such a sandbox is unmanaged. The annotations are the pod's own and
// do not have its identity.
func ParseSandbox(labels, _ map[string]string) (id PodID, ok bool) {
	id = PodID{
		UID:       types.UID(labels[LabelPodUID]),
		Namespace: labels[LabelPodNamespace],
		Name:      labels[LabelPodName],
	}
	if !id.safe() {
		return PodID{}, false
	}
	return id, true
}

// ParseContainer reads what [ContainerLabels] and [ContainerAnnotations] wrote. Without a usable
// identity it returns [ErrUnmanaged] and a zero ContainerID. A malformed annotation leaves its
// field empty, and the error names it. The rest of the ContainerID is good then: callers log the
// error and continue.
func ParseContainer(labels, annotations map[string]string) (ContainerID, error) {
	pod, ok := ParseSandbox(labels, nil)
	name := labels[LabelContainerName]
	if !ok || !safeElement(name) {
		return ContainerID{}, ErrUnmanaged
	}
	id := ContainerID{
		Pod:                      pod,
		Name:                     name,
		TerminationMessagePath:   annotations[AnnotationTerminationMessagePath],
		TerminationMessagePolicy: v1.TerminationMessagePolicy(annotations[AnnotationTerminationMessagePolicy]),
	}
	var errs [6]error
	id.Hash, errs[0] = parseHash(annotations)
	id.RestartCount, errs[1] = parseRestartCount(annotations)
	id.GracePeriod, errs[2] = parseGrace(annotations, AnnotationTerminationGracePeriod)
	id.DeletionGracePeriod, errs[3] = parseGrace(annotations, AnnotationDeletionGracePeriod)
	id.PreStop, errs[4] = parsePreStop(annotations)
	id.Ports, errs[5] = parsePorts(annotations)
	if err := errors.Join(errs[:]...); err != nil {
		return id, fmt.Errorf("read annotations of container %q of pod %s: %w", name, pod, err)
	}
	return id, nil
}

func setIdentity(labels map[string]string, pod *v1.Pod) {
	labels[LabelPodName] = pod.Name
	labels[LabelPodNamespace] = pod.Namespace
	labels[LabelPodUID] = string(pod.UID)
}

// setJSON writes an API object as JSON, which always exists.
func setJSON(annotations map[string]string, key string, value any) {
	if raw, err := json.Marshal(value); err == nil {
		annotations[key] = string(raw)
	}
}

func parseHash(annotations map[string]string) (string, error) {
	text, ok := annotations[AnnotationHash]
	if !ok {
		return "", nil
	}
	hash, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return "", fmt.Errorf("%s: %w", AnnotationHash, err)
	}
	return strconv.FormatUint(hash, 16), nil
}

func parseRestartCount(annotations map[string]string) (int, error) {
	text, ok := annotations[AnnotationRestartCount]
	if !ok {
		return 0, nil
	}
	count, err := strconv.ParseInt(text, 10, 32)
	if err == nil && count < 0 {
		err = fmt.Errorf("%d is negative", count)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", AnnotationRestartCount, err)
	}
	return int(count), nil
}

func parseGrace(annotations map[string]string, key string) (*int64, error) {
	text, ok := annotations[key]
	if !ok {
		return nil, nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err == nil && seconds < 0 {
		err = fmt.Errorf("%d is negative", seconds)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	seconds = min(seconds, maxGraceSeconds)
	return &seconds, nil
}

func parsePreStop(annotations map[string]string) (*v1.LifecycleHandler, error) {
	text, ok := annotations[AnnotationPreStopHandler]
	if !ok {
		return nil, nil
	}
	var handler v1.LifecycleHandler
	if err := json.Unmarshal([]byte(text), &handler); err != nil {
		return nil, fmt.Errorf("%s: %w", AnnotationPreStopHandler, err)
	}
	if handler == (v1.LifecycleHandler{}) {
		return nil, nil
	}
	return &handler, nil
}

func parsePorts(annotations map[string]string) ([]v1.ContainerPort, error) {
	text, ok := annotations[AnnotationPorts]
	if !ok {
		return nil, nil
	}
	var ports []v1.ContainerPort
	if err := json.Unmarshal([]byte(text), &ports); err != nil {
		return nil, fmt.Errorf("%s: %w", AnnotationPorts, err)
	}
	return ports, nil
}

// safeElement reports whether s can be one element of a file path, even if an attacker chose it.
func safeElement(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= maxElement && !strings.ContainsAny(s, "/\x00")
}
