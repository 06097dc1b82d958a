package store

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/deploy/crds"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/v1alpha1"
)

const (
	// fieldManager owns what the engine applies.
	fieldManager = "slipway"
	// establishTimeout is how long the API server may take to serve a definition that was applied.
	establishTimeout = 30 * time.Second
	establishPoll    = 100 * time.Millisecond
)

// EnsureNamespace creates the engine's namespace, and the one of servings, when they are not there.
func (s *Store) EnsureNamespace(ctx context.Context) error {
	for _, name := range []string{s.namespace, s.servingNamespace} {
		if err := s.ensureNamespace(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) ensureNamespace(ctx context.Context, name string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	object := "namespace " + name
	_, err := s.core.Namespaces().Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return failed(err, object)
	}
	_, err = s.core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return failed(err, object)
}

// EnsureCRDs applies the definitions that this build carries and returns when the API server serves them all.
func (s *Store) EnsureCRDs(ctx context.Context) error {
	names, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil {
		return fmt.Errorf("list the definitions: %w", err)
	}
	for _, name := range names {
		text, err := crds.Files.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read the definition %s: %w", name, err)
		}
		if err := s.ensureCRD(ctx, name, text); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) ensureCRD(ctx context.Context, file string, text []byte) error {
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &definition); err != nil {
		return fmt.Errorf("read the definition %s: %w", file, err)
	}
	object := "definition " + definition.Name
	call, cancel := bounded(ctx)
	defer cancel()
	if foreign, err := s.isForeign(call, definition); foreign || err != nil {
		return err
	}
	force := true
	if _, err := s.crds.CustomResourceDefinitions().Patch(call, definition.Name, types.ApplyYAMLPatchType, text,
		metav1.PatchOptions{FieldManager: fieldManager, Force: &force}); err != nil {
		return failed(err, object)
	}
	err := wait.PollUntilContextTimeout(ctx, establishPoll, establishTimeout, true, func(ctx context.Context) (bool, error) {
		found, err := s.crds.CustomResourceDefinitions().Get(ctx, definition.Name, metav1.GetOptions{})
		return err == nil && established(found), err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return failure.New(failure.Unreachable, "%s is not served %s after it was applied: look at its conditions", object,
			establishTimeout)
	}
	return failed(err, object)
}

// labelManagedBy is on the definitions of other groups that are ours.
const labelManagedBy = "app.kubernetes.io/managed-by"

// isForeign says whether the cluster has a definition of another group that another product brought: that one stays as it is.
func (s *Store) isForeign(ctx context.Context, definition apiextensionsv1.CustomResourceDefinition) (bool, error) {
	if definition.Spec.Group == v1alpha1.GroupVersion.Group {
		return false, nil
	}
	found, err := s.crds.CustomResourceDefinitions().Get(ctx, definition.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, failed(err, "definition "+definition.Name)
	}
	return found.Labels[labelManagedBy] != definition.Labels[labelManagedBy], nil
}

func established(definition *apiextensionsv1.CustomResourceDefinition) bool {
	for _, condition := range definition.Status.Conditions {
		if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
			return true
		}
	}
	return false
}

// CheckCluster says what is wrong when the home cluster, or the engine's namespace in it, cannot be read.
func (s *Store) CheckCluster(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := s.core.Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
	return failed(err, "namespace "+s.namespace)
}

// CheckCRDs says what is wrong when one of the engine's own kinds cannot be read.
func (s *Store) CheckCRDs(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for _, check := range []func(context.Context) error{s.services.check, s.plans.check, s.parties.check, s.checkTraffic, s.appImages.check,
		s.servings.check} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	_, err := s.metadata.Resource(recordResource).Namespace(s.namespace).List(ctx, metav1.ListOptions{Limit: 1}) // without their bodies
	return failed(err, "kind "+s.records.name)
}

func (s *Store) checkTraffic(ctx context.Context) error {
	_, err := s.traffic.List(ctx, metav1.ListOptions{Limit: 1})
	return failed(err, "kind "+v1alpha1.TrafficRoutingKind)
}

// Setup prepares the home cluster for as long as it takes: a process that starts before its cluster waits for it, and says so in /readyz.
type Setup struct {
	store   *Store
	install bool
	log     *slog.Logger
	cancel  context.CancelFunc
	done    chan struct{}
}

// NewSetup prepares store's cluster; install says whether the definitions are applied and the engine's namespace is made.
func NewSetup(store *Store, install bool, log *slog.Logger) *Setup {
	return &Setup{store: store, install: install, log: log, done: make(chan struct{})}
}

// Start returns at once.
func (s *Setup) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.done)
		s.run(ctx)
	}()
	return nil
}

// Stop ends the watch on records.
func (s *Setup) Stop(context.Context) error {
	s.cancel()
	<-s.done
	return nil
}

// setupPause is how long a failed preparation waits before the next.
const setupPause = 2 * time.Second

func (s *Setup) run(ctx context.Context) {
	for err := s.prepare(ctx); err != nil; err = s.prepare(ctx) {
		s.log.Warn("the home cluster is not ready yet", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(setupPause):
		}
	}
	s.store.Run(ctx)
}

func (s *Setup) prepare(ctx context.Context) error {
	if err := s.prepareObjects(ctx); err != nil {
		return err
	}
	_, err := s.store.Engine(ctx)
	return err
}

func (s *Setup) prepareObjects(ctx context.Context) error {
	if !s.install {
		return s.store.CheckCRDs(ctx)
	}
	if err := s.store.EnsureCRDs(ctx); err != nil {
		return err
	}
	return s.store.EnsureNamespace(ctx)
}
