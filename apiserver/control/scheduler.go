package control

import (
	"context"
	"fmt"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	corev1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// runScheduler gives pods to nodes until the context ends. It shares the controllers' informers.
func runScheduler(ctx context.Context, opts Options, controllers informers.SharedInformerFactory) error {
	settings, err := schedulerConfig(opts.Workloads)
	if err != nil {
		return err
	}
	connection := actingAs(opts.Loopback, schedulerUser)
	client, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return fmt.Errorf("make the scheduler's client: %w", err)
	}
	shared := sharedInformers{SharedInformerFactory: controllers, own: scheduler.NewInformerFactory(client, 0)}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("record the scheduler's events: %w", err)
	}
	s, err := scheduler.New(ctx, client, shared, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithComponentConfigVersion(settings.APIVersion),
		scheduler.WithKubeConfig(connection),
		scheduler.WithProfiles(settings.Profiles...),
		scheduler.WithPercentageOfNodesToScore(settings.PercentageOfNodesToScore),
		scheduler.WithPodMaxBackoffSeconds(settings.PodMaxBackoffSeconds),
		scheduler.WithPodInitialBackoffSeconds(settings.PodInitialBackoffSeconds),
		scheduler.WithParallelism(settings.Parallelism),
	)
	if err != nil {
		return fmt.Errorf("make the scheduler: %w", err)
	}
	shared.own.Start(ctx.Done())
	defer shared.own.Shutdown()
	shared.Start(ctx.Done())
	shared.own.WaitForCacheSync(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("start the scheduler: %w", err)
	}
	s.Run(ctx)
	return nil
}

// sharedInformers are the controllers' informers but for pods: those of the scheduler are its own,
// because it must not see pods that ended.
type sharedInformers struct {
	informers.SharedInformerFactory
	own informers.SharedInformerFactory
}

// Core returns the informers of the group "".
func (f sharedInformers) Core() core.Interface {
	return sharedCore{Interface: f.SharedInformerFactory.Core(), own: f.own}
}

type sharedCore struct {
	core.Interface
	own informers.SharedInformerFactory
}

// V1 returns the informers of the version v1.
func (c sharedCore) V1() corev1.Interface {
	return sharedCoreV1{Interface: c.Interface.V1(), own: c.own}
}

type sharedCoreV1 struct {
	corev1.Interface
	own informers.SharedInformerFactory
}

// Pods returns the informer of the pods that have not ended.
func (v sharedCoreV1) Pods() corev1.PodInformer { return v.own.Core().V1().Pods() }

// schedulerConfig returns kube-scheduler's default settings. Without workloads the server has no
// ReplicaSets and StatefulSets, by whose pods the default constraints of topology would spread
// pods: then there are no default constraints. Those of a pod count in any case.
func schedulerConfig(workloads bool) (*config.KubeSchedulerConfiguration, error) {
	settings, err := latest.Default()
	if err != nil {
		return nil, fmt.Errorf("make the scheduler's settings: %w", err)
	}
	if workloads {
		return settings, nil
	}
	for _, p := range settings.Profiles[0].PluginConfig {
		if args, ok := p.Args.(*config.PodTopologySpreadArgs); ok && p.Name == names.PodTopologySpread {
			args.DefaultingType = config.ListDefaulting
			return settings, nil
		}
	}
	return nil, fmt.Errorf("the scheduler's default settings have no %s", names.PodTopologySpread)
}
