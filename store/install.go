package store

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/deploy/crds"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/kruise/admission"
	"slipway.io/slipway/release/kruise/definition"
	"slipway.io/slipway/release/v1alpha1"
)

const (
	// establishTimeout is how long the API server may take to serve an applied definition.
	establishTimeout = 30 * time.Second
	establishPoll    = 100 * time.Millisecond
)

// definitions is the resource of CustomResourceDefinitions.
var definitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// EnsureNamespace creates the engine's namespace and that of servings if they do not exist.
func (s *Store) EnsureNamespace(ctx context.Context) error {
	for _, name := range []string{s.namespace, s.servingNamespace} {
		_, err := s.getNamespace(ctx, name)
		if failure.Is(err, failure.NotFound) {
			_, err = s.core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
				metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				continue
			}
			err = asFailure(err, "namespace "+name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// EnsureCRDs applies this build's definitions and returns when the API server serves them all.
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
	wanted := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(text, &wanted.Object); err != nil {
		return fmt.Errorf("read the definition %s: %w", file, err)
	}
	object := "definition " + wanted.GetName()
	foreign := false
	err := failure.RetryOnConflict(object, func() (err error) {
		foreign, err = s.applyCRD(ctx, wanted.DeepCopy())
		return err
	})
	if foreign || err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, establishPoll, establishTimeout, true,
		func(ctx context.Context) (bool, error) {
			found, err := s.crds.CustomResourceDefinitions().Get(ctx, wanted.GetName(), metav1.GetOptions{})
			return err == nil && apihelpers.IsCRDConditionTrue(found, apiextensionsv1.Established), err
		})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return failure.New(failure.Unreachable, "%s is not served %s after it was applied: check its conditions",
			object, establishTimeout)
	}
	return asFailure(err, object)
}

// applyCRD applies one definition, unless the cluster has one of that name from another product.
func (s *Store) applyCRD(ctx context.Context, wanted *unstructured.Unstructured) (foreign bool, err error) {
	name := wanted.GetName()
	object := "definition " + name
	found, err := s.crds.CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return false, asFailure(err, object)
	case isForeign(found):
		return true, nil
	case isConverted(found):
		if err := keepServed(wanted, found); err != nil {
			return false, fmt.Errorf("read the %s: %w", object, err)
		}
	}
	if err == nil && isUpToDate(found, wanted) {
		return false, nil
	}
	return false, asFailure(s.apply(ctx, definitions, wanted), object)
}

// isUpToDate reports whether a definition is as wanted. Applying it again would only make the API server compile all
// its rules.
func isUpToDate(found *apiextensionsv1.CustomResourceDefinition, wanted *unstructured.Unstructured) bool {
	var want apiextensionsv1.CustomResourceDefinition
	if runtime.DefaultUnstructuredConverter.FromUnstructured(wanted.Object, &want) != nil {
		return false
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&want.Spec)
	have := found.DeepCopy()
	have.Spec.Conversion, want.Spec.Conversion = nil, nil
	return equality.Semantic.DeepEqual(have.Spec, want.Spec) && contains(found.Labels, want.Labels) &&
		contains(found.Annotations, want.Annotations)
}

// contains reports whether labels or annotations include these.
func contains(have, want labels.Set) bool { return want.AsSelectorPreValidated().Matches(have) }

// keepServed keeps versions served that a server converts: the list of versions has a single owner. A concurrent write
// by a server makes the write a Conflict.
func keepServed(wanted *unstructured.Unstructured, found *apiextensionsv1.CustomResourceDefinition) error {
	versions, _, err := unstructured.NestedSlice(wanted.Object, "spec", "versions")
	if err != nil {
		return err
	}
	for _, have := range found.Spec.Versions {
		for _, v := range versions {
			if version, is := v.(map[string]any); is && version["name"] == have.Name && have.Served {
				version["served"] = true
			}
		}
	}
	wanted.SetResourceVersion(found.ResourceVersion)
	return unstructured.SetNestedSlice(wanted.Object, versions, "spec", "versions")
}

// isForeign reports whether another product installed a definition of another group: that one is not changed.
func isForeign(found *apiextensionsv1.CustomResourceDefinition) bool {
	return found.Spec.Group != v1alpha1.GroupVersion.Group && !definition.IsOurs(found.Labels)
}

// CheckCRDs returns an error if one of the engine's own kinds cannot be read.
func (s *Store) CheckCRDs(ctx context.Context) error {
	for _, check := range []func(context.Context) error{s.services.check, s.plans.check, s.parties.check,
		s.checkTraffic, s.appImages.check, s.servings.check} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	// without their bodies
	_, err := s.metadata.Resource(recordResource).Namespace(s.namespace).List(ctx, metav1.ListOptions{Limit: 1})
	return asFailure(err, "kind "+s.records.name)
}

func (s *Store) checkTraffic(ctx context.Context) error {
	_, err := s.traffic.List(ctx, metav1.ListOptions{Limit: 1})
	return asFailure(err, "kind "+v1alpha1.TrafficRoutingKind)
}

// Setup prepares the home cluster, and retries until it succeeds: a process that starts before its cluster waits for
// it, and /readyz reports that. Then it watches the records.
type Setup struct {
	watch.Background
	store   *Store
	install bool
	log     *slog.Logger
}

// NewSetup returns the setup of store's cluster; with install it applies the definitions and creates the engine's
// namespace.
func NewSetup(store *Store, install bool, log *slog.Logger) *Setup {
	return &Setup{store: store, install: install, log: log}
}

// Start starts the setup in the background and returns at once.
func (s *Setup) Start(context.Context) error {
	s.Begin(s.run)
	return nil
}

// setupPause is the pause after a failed attempt.
const setupPause = 2 * time.Second

func (s *Setup) run(ctx context.Context) {
	for err := s.prepare(ctx); err != nil; err = s.prepare(ctx) {
		s.log.Warn("the home cluster is not ready yet", "error", err)
		if pause.For(ctx, setupPause) != nil {
			return
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
	err := s.store.EnsureRolloutPolicies(ctx)
	if failure.Is(err, failure.Unreachable) {
		return err
	}
	if err != nil { // the engine works without them
		s.log.WarnContext(ctx, "the admission policies for Rollouts can't be installed", "error", err)
	}
	return s.store.EnsureNamespace(ctx)
}

// EnsureRolloutPolicies applies the admission policies for Rollouts. They refer to Rollouts, so the definition has to
// exist. With another product's definition they are not needed, and on a cluster that does not serve such policies they
// are not possible.
func (s *Store) EnsureRolloutPolicies(ctx context.Context) error {
	crd, err := s.crds.CustomResourceDefinitions().Get(ctx, definition.Name, metav1.GetOptions{})
	if err != nil {
		return asFailure(err, "definition "+definition.Name)
	}
	if !definition.IsOurs(crd.Labels) {
		return nil
	}
	for _, policy := range admission.Policies() {
		err := s.apply(ctx, kube.ResourceOf(policy), policy)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return asFailure(err, policy.GetKind()+" "+policy.GetName())
		}
	}
	return nil
}

func (s *Store) apply(ctx context.Context, resource schema.GroupVersionResource, o *unstructured.Unstructured) error {
	_, err := s.untyped.Resource(resource).Apply(ctx, o.GetName(), o,
		metav1.ApplyOptions{FieldManager: fieldmanager.Slipway, Force: true})
	return err
}
