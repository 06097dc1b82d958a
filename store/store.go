// Package store reads and writes the objects of the home cluster: declared objects (services, plans, parties,
// AppImages, servings) and records of releases.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/kruise/v1beta1"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workload"
)

// defaultNamespace is the default namespace of the engine's objects.
const defaultNamespace = "slipway"

// callTimeout bounds one request to the API server, except for watches.
const callTimeout = 10 * time.Second

// Store reads and writes the objects of API group slipway.io in one namespace of the home cluster, and those of
// kuscia.secretflow in theirs. Its methods are safe for concurrent use; their errors are failure.Error with the kinds
// NotFound, Conflict, Refused, Forbidden and Unreachable.
type Store struct {
	namespace, servingNamespace string

	services  kind[v1alpha1.ReleaseService, *v1alpha1.ReleaseService]
	plans     kind[v1alpha1.DeployPlan, *v1alpha1.DeployPlan]
	records   records
	parties   kind[v1alpha1.Party, *v1alpha1.Party]
	appImages kind[kuscia.AppImage, *kuscia.AppImage]
	servings  kind[kuscia.KusciaDeployment, *kuscia.KusciaDeployment]
	rollouts  dynamic.NamespaceableResourceInterface
	traffic   dynamic.NamespaceableResourceInterface
	untyped   dynamic.Interface
	metadata  metadata.Interface
	// watchedRecords and watched are clients without callTimeout.
	watchedRecords records
	watched        metadata.Interface
	core           core.CoreV1Interface
	crds           apiextensions.ApiextensionsV1Interface
	// recordCache holds the records without their bodies; a watch keeps it up to date once Run was called.
	recordCache *watch.Watch[*v1alpha1.ReleaseRecord]
	// servingEvents is the watch on servings, once Run was called; followers are notified of their changes.
	servingEvents *watch.Watch[*metav1.PartialObjectMetadata]
	followers     watch.Subscriptions[string]
	queues        recent.Cache
	partyLists    recent.Cache

	engineName string
	engineMu   sync.Mutex
	// engine is the result of Engine; it never changes during the life of the process.
	engine workload.Engine
}

// New returns a store on the namespace ("": defaultNamespace) of the cluster of config (see kube.Configure), with its
// servings in another ("": Kuscia's). It makes no request.
func New(config *rest.Config, namespace, servings string) (*Store, error) {
	if namespace == "" {
		namespace = defaultNamespace
	}
	config = rest.CopyConfig(config) // custom resources have no other format than JSON
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	s := &Store{namespace: namespace, servingNamespace: cmp.Or(servings, kuscia.Namespace)}
	err := s.addWatched(config)
	config.Timeout = callTimeout
	if err = errors.Join(err, s.addOwn(config), s.addKuscia(config)); err != nil {
		return nil, err
	}
	if s.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("prepare the home cluster's metadata client: %w", err)
	}
	if s.untyped, err = kube.NewUntyped(config); err != nil {
		return nil, fmt.Errorf("prepare the home cluster's client of Rollouts and TrafficRoutings: %w", err)
	}
	s.traffic, s.rollouts = s.untyped.Resource(v1alpha1.TrafficRoutingResource), s.untyped.Resource(v1beta1.Resource)
	if s.core, err = core.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("prepare the home cluster's core client: %w", err)
	}
	if s.crds, err = apiextensions.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("prepare the home cluster's definitions client: %w", err)
	}
	s.recordCache, s.servingEvents = s.watchRecords(), s.watchServings()
	return s, nil
}

// Namespace is the namespace of the store's objects.
func (s *Store) Namespace() string { return s.namespace }

// addOwn prepares the clients of the objects of slipway.io.
func (s *Store) addOwn(config *rest.Config) error {
	own, err := newGroup(config, v1alpha1.GroupVersion, s.namespace)
	if err != nil {
		return err
	}
	s.services = newKind[v1alpha1.ReleaseService](own, "releaseservices", "ReleaseService", "service", "services")
	s.plans = newKind[v1alpha1.DeployPlan](own, "deployplans", "DeployPlan", "plan", "plans")
	s.records = newRecords(own)
	s.parties = newKind[v1alpha1.Party](own, "parties", "Party", "party", "parties")
	return nil
}

type records = kind[v1alpha1.ReleaseRecord, *v1alpha1.ReleaseRecord]

func newRecords(own group) records {
	return newKind[v1alpha1.ReleaseRecord](own, recordResource.Resource, "ReleaseRecord", "record", "records")
}

// addWatched prepares the clients of watches.
func (s *Store) addWatched(config *rest.Config) error {
	own, err := newGroup(config, v1alpha1.GroupVersion, s.namespace)
	if err != nil {
		return err
	}
	s.watchedRecords = newRecords(own)
	s.watched, err = metadata.NewForConfig(config)
	return err
}

// addKuscia prepares the clients of the objects of kuscia.secretflow. AppImages have no namespace.
func (s *Store) addKuscia(config *rest.Config) error {
	theirs, err := newGroup(config, kuscia.GroupVersion, "")
	if err != nil {
		return err
	}
	s.appImages = newKind[kuscia.AppImage](theirs, kuscia.AppImageResource.Resource, "AppImage", "AppImage",
		"AppImages")
	theirs.namespace = s.servingNamespace
	s.servings = newKind[kuscia.KusciaDeployment](theirs, kuscia.KusciaDeploymentResource.Resource, "KusciaDeployment",
		"serving", "servings")
	return nil
}

// group is one API group and version, with its client and registered types.
type group struct {
	schema.GroupVersion
	rest.Interface
	runtime.ParameterCodec
	scheme    *runtime.Scheme
	namespace string
}

func newGroup(config *rest.Config, version schema.GroupVersion, namespace string) (group, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, version)
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &version
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return group{}, fmt.Errorf("prepare the home cluster's client of %s: %w", version, err)
	}
	return group{version, client, runtime.NewParameterCodec(scheme), scheme, namespace}, nil
}

// The ConfigMap in the engine's namespace with its identity.
const (
	engineObject  = "slipway-engine"
	engineKeyUID  = "uid"
	engineKeyName = "name"
)

// SetEngineName sets the engine's display name; "": its namespace. Call it before Engine. A process that does not call
// it uses the stored name.
func (s *Store) SetEngineName(name string) {
	s.engineName = cmp.Or(name, s.namespace)
}

// Engine returns this engine as its claims name it. The first worker creates the UID, which stays the same as long as
// the ConfigMap exists.
func (s *Store) Engine(ctx context.Context) (workload.Engine, error) {
	s.engineMu.Lock()
	defer s.engineMu.Unlock()
	if s.engine.UID != "" {
		return s.engine, nil
	}
	var engine workload.Engine
	err := failure.RetryOnConflict("ConfigMap "+engineObject, func() (err error) {
		engine, err = s.readEngine(ctx)
		return err
	})
	if err == nil {
		s.engine = engine
	}
	return engine, err
}

func (s *Store) readEngine(ctx context.Context) (workload.Engine, error) {
	var none workload.Engine
	maps, object := s.core.ConfigMaps(s.namespace), "ConfigMap "+s.namespace+"/"+engineObject
	found, err := maps.Get(ctx, engineObject, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		fresh := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: engineObject},
			Data: map[string]string{engineKeyUID: uuid.NewString(), engineKeyName: cmp.Or(s.engineName, s.namespace)}}
		found, err = maps.Create(ctx, fresh, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // another process of this engine was faster
			found, err = maps.Get(ctx, engineObject, metav1.GetOptions{})
		}
		if apierrors.IsForbidden(err) {
			return none, failure.New(failure.Forbidden, "%s does not exist, and this account may not create it: "+
				"start a worker, which creates it (deploy/rbac/centre.yaml)", object)
		}
	}
	if err != nil {
		return none, asFailure(err, object)
	}
	if found.Data[engineKeyUID] == "" {
		return none, failure.New(failure.Refused, "%s has no %s: restore the one in the claims of this engine's "+
			"releases, or delete the ConfigMap if no release is in progress", object, engineKeyUID)
	}
	if s.engineName != "" && found.Data[engineKeyName] != s.engineName {
		found.Data[engineKeyName] = s.engineName
		if found, err = maps.Update(ctx, found, metav1.UpdateOptions{}); err != nil {
			return none, asFailure(err, object)
		}
	}
	return workload.Engine{UID: found.Data[engineKeyUID], Name: found.Data[engineKeyName]}, nil
}
