package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/tasks"
)

// Config are the settings of a [Node].
type Config struct {
	// RootDir is the kubelet's root directory, an absolute path.
	RootDir string
	// NodeName is the node's name.
	NodeName string
}

// Deps are what a [Node] works with. An error of Object, Token or Attached may be one of the
// caller's own, for instance that the answer is on its way. Node passes it on.
type Deps struct {
	Drivers *Drivers
	// Object returns the CSIDriver object of a pod's driver. If nobody has such objects for the
	// pod, it returns [Unknown].
	Object func(pod *v1.Pod, driver string) (*storagev1.CSIDriver, error)
	// Secret returns the content of a Secret.
	Secret func(ctx context.Context, pod *v1.Pod, ref *v1.SecretReference) (map[string][]byte, error)
	// Token returns a token of the pod's service account for an audience, and when it expires.
	Token func(pod *v1.Pod, ask storagev1.TokenRequest) (token string, expires time.Time, err error)
	// Attached returns nil once a volume that needs attaching is attached. It also returns nil if
	// nobody attaches volumes for this pod.
	Attached func(pod *v1.Pod, volume v1.UniqueVolumeName) error
	// Attachment returns what the attacher reports to the driver. attachment is the
	// VolumeAttachment's name.
	Attachment func(ctx context.Context, pod *v1.Pod, attachment string) (map[string]string, error)
	// IsMounted reports whether something is mounted on a path, without looking at what is mounted.
	// The error is fs.ErrNotExist if there is no such path. Unmount unmounts it.
	IsMounted func(path string) (bool, error)
	Unmount   func(path string) error
	// Bind mounts one path on another.
	Bind func(from, to string) error
	// Changed is called when the set of volumes in use has changed; nil for nobody.
	Changed func()
	Logger  *slog.Logger
}

// NotAttached is the error of a volume that is not attached to this node, or of which that is not
// known.
type NotAttached struct{ Err error }

// Error returns the cause's text.
func (e *NotAttached) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *NotAttached) Unwrap() error { return e.Err }

// Unknown returns the CSIDriver of a driver that has no such object. The driver has both kinds of
// volumes, and nothing is attached for it.
func Unknown(driver string) *storagev1.CSIDriver {
	no := false
	o := &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
		AttachRequired: &no,
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{
			storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral,
		},
	}}
	o.Name = driver
	return o
}

// Node brings up and takes down volumes. Make it with [NewNode].
type Node struct {
	cfg  Config
	deps Deps
	boot string
	// turns let one caller at a time use a driver for a volume.
	turns tasks.Turns[v1.UniqueVolumeName]
	// holders are the pods that have volumes.
	holders holders

	mu sync.Mutex
	// inUse are the volumes that need attaching and that pods want or have.
	inUse map[types.UID]map[v1.UniqueVolumeName]bool
	// published are the times at which volumes were last published, by their ready files. It has
	// only volumes that are published again from time to time.
	published map[string]time.Time
	// staged are the volumes that this process has staged.
	staged map[v1.UniqueVolumeName]bool
}

// NewNode returns a Node. It reads from the disk which volumes are in use.
func NewNode(cfg Config, deps Deps) *Node {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Changed == nil {
		deps.Changed = func() {}
	}
	if abs, err := filepath.Abs(cfg.RootDir); err == nil {
		cfg.RootDir = abs
	}
	n := &Node{
		cfg:       cfg,
		deps:      deps,
		boot:      boot(),
		inUse:     map[types.UID]map[v1.UniqueVolumeName]bool{},
		published: map[string]time.Time{},
		staged:    map[v1.UniqueVolumeName]bool{},
	}
	n.recall()
	return n
}

// IsUp reports whether a volume is up, and when it was last published. It looks at the disk, and
// does not ask the driver. A volume that a kubelet brought up is up.
func (n *Node) IsUp(v *Volume) (up bool, published time.Time, err error) {
	if err := n.noOther(v); err != nil {
		return false, time.Time{}, err
	}
	if v.Block && !n.isMapped(v) {
		return false, time.Time{}, nil
	}
	mounted, err := n.deps.IsMounted(n.target(v.Pod.UID, v.key()))
	if errors.Is(err, fs.ErrNotExist) {
		return false, time.Time{}, nil
	}
	if err != nil {
		return false, time.Time{}, fmt.Errorf("look for volume %q: %w", v.Name, err)
	}
	ready := n.readyPath(v.Pod.UID, v.key())
	p := readProgress(ready)
	if p == nil {
		at := n.recordDir(v.Pod.UID, v.key())
		if v.Block {
			at = n.stageRecordDir(&record{Volume: v.Name, Block: true})
		}
		r, err := readRecord(at)
		return err == nil && r != nil && (mounted || v.Block) && r.Handle == v.Handle &&
			r.Driver == v.Driver, time.Now(), err
	}
	if info, err := os.Stat(ready); err == nil {
		published = info.ModTime()
	}
	return p.Up && p.Boot == n.boot && (mounted || !p.Mounted), published, nil
}

// Again returns when a volume that is up has to be published again; zero means never. Two times
// count, and the sooner one wins: that of the volume's file, and that since the volume was
// published or first looked at. The clock that gives files their times may have been put back.
func (n *Node) Again(v *Volume) time.Time {
	ready := n.readyPath(v.Pod.UID, v.key())
	p := readProgress(ready)
	info, err := os.Stat(ready)
	if p == nil || err != nil || !p.Republish {
		return time.Time{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	at, known := n.published[ready]
	if !known {
		at = now
		n.published[ready] = at
	}
	return now.Add(republishPeriod - max(now.Sub(at), now.Sub(info.ModTime())))
}

// forgetPublished drops what is known of a volume whose ready file is being removed.
func (n *Node) forgetPublished(ready string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.published, ready)
}

// Prepare collects from memory what a driver needs to know about the volume. The error says why the
// volume cannot be brought up now.
func (n *Node) Prepare(v *Volume) error {
	if err := errors.Join(checkName(v.Driver), checkName(v.Name)); err != nil {
		return err
	}
	object, err := n.deps.Object(v.Pod, v.Driver)
	if err != nil {
		return err
	}
	v.object = object
	if err := v.checkMode(); err != nil {
		return fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to determine volume lifecycle mode: %w", err)
	}
	if v.needsAttaching() {
		n.use(v.Pod.UID, v.UniqueName())
		if err := n.deps.Attached(v.Pod, v.UniqueName()); err != nil {
			return &NotAttached{Err: err}
		}
		v.attached = true
	}
	if _, err := n.deps.Drivers.Get(v.Driver); err != nil {
		return fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: %w", err)
	}
	v.tokens, err = n.tokens(v)
	return err
}

// tokens returns the tokens that the driver asks for, as it gets them: a JSON object by audience.
func (n *Node) tokens(v *Volume) (string, error) {
	if v.object == nil || len(v.object.Spec.TokenRequests) == 0 {
		return "", nil
	}
	type token struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expirationTimestamp"`
	}
	all := map[string]token{}
	for _, ask := range v.object.Spec.TokenRequests {
		text, expires, err := n.deps.Token(v.Pod, ask)
		if err != nil {
			return "", fmt.Errorf("get a token of service account %s/%s for CSI driver %s: %w", v.Pod.Namespace,
				v.Pod.Spec.ServiceAccountName, v.Driver, err)
		}
		all[ask.Audience] = token{Token: text, Expires: expires}
	}
	data, err := json.Marshal(all)
	return string(data), err
}

// lock keeps all others away from a volume until unlock is called.
func (n *Node) lock(ctx context.Context, volume v1.UniqueVolumeName) (unlock func(), err error) {
	return n.turns.Take(ctx, volume)
}
