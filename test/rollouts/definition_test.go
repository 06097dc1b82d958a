// Package rollouts_test holds the definition of Rollouts against a real API server: what it takes, refuses, warns of and converts.
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

// cluster is a namespace on a cluster that has the definition.
type cluster struct {
	harness.Stack
	namespace string
	// objects warns into warnings.
	objects  dynamic.Interface
	warnings *warnings
}

var installed struct {
	once sync.Once
	err  error
}

// install installs the definition and the policies once: the API server compiles all rules each time.
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

// warnings are what the API server has warned of.
type warnings struct {
	mu   sync.Mutex
	said []string
}

// HandleWarningHeader keeps a warning.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

// take are the warnings since the last call.
func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := strings.Join(w.said, "\n")
	w.said = nil
	return said
}

func (c cluster) beta() dynamic.ResourceInterface {
	return c.objects.Resource(v1beta1.Resource).Namespace(c.namespace)
}

// parse reads an object, and gives it the test's namespace and a name if it has none.
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

// parseOwn is parse with a workload of the object's own: each has one Rollout.
func (c cluster) parseOwn(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	return named(t, c.parse(t, text))
}

// example is an example of the API specification with a name and a workload of its own.
func (c cluster) example(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	u := c.parse(t, read(t, file))
	u.SetName(harness.RandomName("r"))
	return named(t, u)
}

// read is an example of the API specification as it stands.
func read(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "documents", file+".yaml"))
	require.NoError(t, err)
	return string(raw)
}

// named gives the workload of an object the object's name.
func named(t *testing.T, u *unstructured.Unstructured) *unstructured.Unstructured {
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

// requireVerdict fails unless err is a refusal that says so; an empty text stands for no refusal.
func requireVerdict(t *testing.T, err error, says, reason string) {
	t.Helper()
	if says == "" {
		require.NoError(t, err, reason)
		return
	}
	require.ErrorContains(t, err, says, reason)
}
