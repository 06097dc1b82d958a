// Package rollouts_test tests the CustomResourceDefinition of Rollouts with a real API server: validation, warnings and
// conversion.
package rollouts_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
)

// cluster is a namespace on a cluster where the definition is installed.
type cluster struct {
	harness.Stack
	namespace string
	// objects is a client that collects the warnings of the API server in warnings.
	objects  dynamic.Interface
	warnings *warnings
}

var installed struct {
	once sync.Once
	err  error
}

// install installs the definition and the policies once, because the API server compiles all rules at each
// installation.
func install(stack harness.Stack) error {
	installed.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		defer cancel()
		home, err := store.New(stack.REST, "default", "default")
		if err == nil {
			err = errors.Join(home.EnsureCRDs(ctx), home.EnsureRolloutPolicies(ctx))
		}
		installed.err = err
	})
	return installed.err
}

func newCluster(t *testing.T) cluster {
	t.Helper()
	stack := harness.SharedStack(t)
	c := cluster{Stack: stack, namespace: stack.Namespace(t, "rollouts"), warnings: &warnings{}}
	require.NoError(t, install(stack))
	var err error
	config := rest.CopyConfig(stack.REST)
	config.WarningHandler = c.warnings
	c.objects, err = dynamic.NewForConfig(config)
	require.NoError(t, err)
	return c
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// warnings collects the warnings of the API server.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader stores a warning.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// take returns the warnings since the last call.
func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := strings.Join(w.texts, "\n")
	w.texts = nil
	return said
}

func (c cluster) beta() dynamic.ResourceInterface {
	return c.objects.Resource(v1beta1.Resource).Namespace(c.namespace)
}

// parse parses an object and sets the test's namespace, and a random name if it has none.
func (c cluster) parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u, err := parse(text)
	require.NoError(t, err, text)
	u.SetNamespace(c.namespace)
	if u.GetName() == "" {
		u.SetName(harness.RandomName("r"))
	}
	return u
}

// parseOwn is like parse, but gives the object its own workload: a workload can have only one Rollout.
func (c cluster) parseOwn(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	return withOwnWorkload(t, c.parse(t, text))
}

// example returns an example of the API specification with its own name and workload.
func (c cluster) example(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	u := c.parse(t, read(t, file))
	u.SetName(harness.RandomName("r"))
	return withOwnWorkload(t, u)
}

// read returns an unchanged example of the API specification.
func read(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "documents", file+".yaml"))
	require.NoError(t, err)
	return string(raw)
}

// withOwnWorkload sets the name of the object's workload to the object's name.
func withOwnWorkload(t *testing.T, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	path := []string{"spec", "workloadRef", "name"}
	if u.GetAPIVersion() != v1beta1.GroupVersion.String() {
		path = []string{"spec", "objectRef", "workloadRef", "name"}
	}
	require.NoError(t, unstructured.SetNestedField(u.Object, u.GetName(), path...))
	return u
}

func parse(text string) (*unstructured.Unstructured, error) {
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(raw)
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}

// requireVerdict requires err to be a refusal that contains says; an empty says requires no error.
func requireVerdict(t *testing.T, err error, says, reason string) {
	t.Helper()
	if says == "" {
		require.NoError(t, err, reason)
		return
	}
	require.ErrorContains(t, err, says, reason)
}
