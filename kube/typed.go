package kube

import (
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	batchv1 "k8s.io/client-go/kubernetes/typed/batch/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	policyv1 "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/rest"
)

// Typed is the client for built-in kinds: those groups of client-go's kubernetes.Interface that Slipway uses. The
// clients of the other fifty groups would be an eighth of the program's code, all of which a process keeps in memory.
type Typed interface {
	Discovery() discovery.DiscoveryInterface
	AppsV1() appsv1.AppsV1Interface
	AuthenticationV1() authenticationv1.AuthenticationV1Interface
	AuthorizationV1() authorizationv1.AuthorizationV1Interface
	BatchV1() batchv1.BatchV1Interface
	CoordinationV1() coordinationv1.CoordinationV1Interface
	CoreV1() corev1.CoreV1Interface
	PolicyV1() policyv1.PolicyV1Interface
}

// typed implements Typed.
type typed struct {
	discovery      *discovery.DiscoveryClient
	apps           *appsv1.AppsV1Client
	authentication *authenticationv1.AuthenticationV1Client
	authorization  *authorizationv1.AuthorizationV1Client
	batch          *batchv1.BatchV1Client
	coordination   *coordinationv1.CoordinationV1Client
	core           *corev1.CoreV1Client
	policy         *policyv1.PolicyV1Client
}

// NewTyped returns the client for built-in kinds.
func NewTyped(config *rest.Config) (Typed, error) {
	config = Protobuf(config)
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	c := &typed{}
	err = errors.Join(
		assign(&c.discovery, discovery.NewDiscoveryClientForConfigAndClient, config, shared),
		assign(&c.apps, appsv1.NewForConfigAndClient, config, shared),
		assign(&c.authentication, authenticationv1.NewForConfigAndClient, config, shared),
		assign(&c.authorization, authorizationv1.NewForConfigAndClient, config, shared),
		assign(&c.batch, batchv1.NewForConfigAndClient, config, shared),
		assign(&c.coordination, coordinationv1.NewForConfigAndClient, config, shared),
		assign(&c.core, corev1.NewForConfigAndClient, config, shared),
		assign(&c.policy, policyv1.NewForConfigAndClient, config, shared),
	)
	return c, err
}

// Protobuf returns a copy of config for clients of built-in kinds. They are read as protobuf, which costs API server
// and client less than JSON.
func Protobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON,
		runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	return config
}

// assign creates the client of one group.
func assign[C any](client *C, make func(*rest.Config, *http.Client) (C, error), config *rest.Config,
	shared *http.Client) (err error) {
	*client, err = make(config, shared)
	return err
}

func (c *typed) Discovery() discovery.DiscoveryInterface { return c.discovery }
func (c *typed) AppsV1() appsv1.AppsV1Interface          { return c.apps }
func (c *typed) AuthenticationV1() authenticationv1.AuthenticationV1Interface {
	return c.authentication
}
func (c *typed) AuthorizationV1() authorizationv1.AuthorizationV1Interface { return c.authorization }
func (c *typed) BatchV1() batchv1.BatchV1Interface                         { return c.batch }
func (c *typed) CoordinationV1() coordinationv1.CoordinationV1Interface    { return c.coordination }
func (c *typed) CoreV1() corev1.CoreV1Interface                            { return c.core }
func (c *typed) PolicyV1() policyv1.PolicyV1Interface                      { return c.policy }
