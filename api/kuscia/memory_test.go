package kuscia

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// created is the creation time of every object of a memory.
var created = time.Date(2024, 1, 17, 10, 18, 2, 0, time.UTC)

// memory is an in-memory homeStore with the rules of the home cluster.
type memory struct {
	mu       sync.Mutex
	versions int
	images   map[string]*kuscia.AppImage
	servings map[string]*kuscia.KusciaDeployment
	domains  []string
	// writes counts changes.
	writes int
	// lostRaces is the number of the next updates that lose a race against another client.
	lostRaces int
	// broken is the error of every call; nil: none.
	broken error
	// reads counts the reads of each AppImage and serving by name.
	reads map[string]int
	// panics makes every read of a serving panic.
	panics bool
}

func newMemory(domains ...string) *memory {
	return &memory{images: map[string]*kuscia.AppImage{}, servings: map[string]*kuscia.KusciaDeployment{},
		reads: map[string]int{}, domains: domains}
}

// service returns a Service on the memory.
func (m *memory) service() *Service { return NewService(m, slog.New(slog.DiscardHandler)) }

func (m *memory) lock() func() {
	m.mu.Lock()
	return m.mu.Unlock
}

func (m *memory) stamp(o *metav1.ObjectMeta) {
	m.versions++
	m.writes++
	o.ResourceVersion = strconv.Itoa(m.versions)
}

func (m *memory) initMeta(o *metav1.ObjectMeta) {
	m.stamp(o)
	o.CreationTimestamp, o.Generation, o.UID = metav1.NewTime(created), 1, types.UID("uid-"+o.ResourceVersion)
}

func notFoundError(name string) error {
	return failure.New(failure.NotFound, "%s does not exist", name)
}

func conflictError(name string) error { return failure.New(failure.Conflict, "%s was changed", name) }

func (m *memory) ListAppImages(_ context.Context, limit int, cursor string) (items []kuscia.AppImage, next string,
	err error) {
	defer m.lock()()
	for _, name := range slices.Sorted(mapKeys(m.images)) {
		if name <= cursor {
			continue
		}
		if len(items) == limit {
			return items, items[limit-1].Name, m.broken
		}
		items = append(items, *m.images[name].DeepCopy())
	}
	return items, "", m.broken
}

func mapKeys[V any](of map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range of {
			if !yield(key) {
				return
			}
		}
	}
}

func (m *memory) GetAppImage(_ context.Context, name string) (*kuscia.AppImage, error) {
	defer m.lock()()
	m.reads[name]++
	if m.broken != nil {
		return nil, m.broken
	}
	if image, there := m.images[name]; there {
		return image.DeepCopy(), nil
	}
	return nil, notFoundError(name)
}

func (m *memory) CreateAppImage(_ context.Context, image *kuscia.AppImage) error {
	defer m.lock()()
	if m.broken != nil {
		return m.broken
	}
	if m.images[image.Name] != nil {
		return conflictError(image.Name)
	}
	m.images[image.Name] = image.DeepCopy()
	m.initMeta(&m.images[image.Name].ObjectMeta)
	return nil
}

func (m *memory) UpdateAppImage(_ context.Context, image *kuscia.AppImage) error {
	defer m.lock()()
	stored := m.images[image.Name]
	if m.loseRace() || stored == nil || stored.ResourceVersion != image.ResourceVersion {
		return conflictError(image.Name)
	}
	m.images[image.Name] = image.DeepCopy()
	m.stamp(&m.images[image.Name].ObjectMeta)
	return nil
}

// TryAppImage is for the native API only.
func (m *memory) TryAppImage(context.Context, *kuscia.AppImage) error { return errors.ErrUnsupported }

func (m *memory) DeleteAppImage(_ context.Context, name string) error {
	defer m.lock()()
	if m.images[name] == nil {
		return notFoundError(name)
	}
	m.writes++
	delete(m.images, name)
	return m.broken
}

func (m *memory) GetServing(_ context.Context, id string) (*kuscia.KusciaDeployment, error) {
	defer m.lock()()
	m.reads[id]++
	if m.panics {
		panic("broken")
	}
	if m.broken != nil {
		return nil, m.broken
	}
	if serving, there := m.servings[id]; there {
		return serving.DeepCopy(), nil
	}
	return nil, notFoundError(id)
}

func (m *memory) CreateServing(_ context.Context, serving *kuscia.KusciaDeployment) error {
	defer m.lock()()
	if m.servings[serving.Name] != nil {
		return conflictError(serving.Name)
	}
	m.servings[serving.Name] = roundTrip(serving)
	m.initMeta(&m.servings[serving.Name].ObjectMeta)
	return nil
}

// roundTrip returns the object as an API server stores it: without empty maps, and with canonical quantities.
func roundTrip(serving *kuscia.KusciaDeployment) *kuscia.KusciaDeployment {
	text, err := yaml.Marshal(serving)
	if err != nil {
		panic(err)
	}
	var back kuscia.KusciaDeployment
	if err := yaml.Unmarshal(text, &back); err != nil {
		panic(err)
	}
	return &back
}

func (m *memory) UpdateServing(_ context.Context, serving *kuscia.KusciaDeployment) error {
	defer m.lock()()
	before := m.servings[serving.Name]
	if m.loseRace() || before == nil || before.ResourceVersion != serving.ResourceVersion {
		return conflictError(serving.Name)
	}
	after := roundTrip(serving)
	after.Generation, after.Status = before.Generation+1, before.Status
	m.stamp(&after.ObjectMeta)
	m.servings[serving.Name] = after
	*serving = *after.DeepCopy()
	return nil
}

func (m *memory) loseRace() bool {
	if m.lostRaces == 0 {
		return false
	}
	m.lostRaces--
	return true
}

func (m *memory) DeleteServing(_ context.Context, asked *kuscia.KusciaDeployment) error {
	defer m.lock()()
	serving := m.servings[asked.Name]
	switch {
	case serving == nil:
		return notFoundError(asked.Name)
	case serving.UID != asked.UID:
		return conflictError(asked.Name)
	}
	m.writes++
	if len(serving.Finalizers) > 0 {
		now := metav1.NewTime(created)
		serving.DeletionTimestamp = &now
		return nil
	}
	delete(m.servings, asked.Name)
	return nil
}

func (m *memory) Queue(_ context.Context, party string) (string, bool, error) {
	return "slipway.party.default", slices.Contains(m.domains, party), nil
}

func (m *memory) CheckCluster(context.Context) error { return m.broken }

// image adds an AppImage from YAML.
func (m *memory) image(t testing.TB, name, spec string) {
	t.Helper()
	image := &kuscia.AppImage{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &image.Spec); err != nil {
		t.Fatal(err)
	}
	if err := m.CreateAppImage(context.Background(), image); err != nil {
		t.Fatal(err)
	}
	m.writes = 0
}

// oneContainer is the AppImage of Kuscia's documents; its container has the name used in their example responses.
const oneContainer = `
image: {name: secretflow/serving-anolis8, tag: latest}
configTemplates: {serving-config.conf: '{"serving_id": "{{.SERVING_ID}}"}'}
deployTemplates:
- name: secretflow
  replicas: 1
  spec:
    containers:
    - name: secretflow
      command: [sh, -c, ./secretflow_serving]
      configVolumeMounts: [{mountPath: /etc/kuscia/serving-config.conf, subPath: serving-config.conf}]
      ports:
      - {name: service, port: 53509, protocol: HTTP, scope: Cluster}
      - {name: internal, port: 53510, protocol: HTTP, scope: Domain}
      - {name: brpc-builtin, port: 53511, protocol: HTTP, scope: Domain}
      readinessProbe: {httpGet: {path: /health, port: 53511}}
    restartPolicy: Never
`

// twoContainers has a template for the role server only.
const twoContainers = `
image: {name: registry.test/two, tag: v1}
deployTemplates:
- name: two
  role: server
  spec:
    containers:
    - name: main
      ports: [{name: service, port: 8080, scope: Cluster}]
      resources: {requests: {cpu: 50m}}
    - name: side
`

// sample returns a memory with the parties and AppImages used in the tests.
func sample(t testing.TB) *memory {
	t.Helper()
	m := newMemory("alice", "bob")
	m.image(t, "sf-serving-image", oneContainer)
	m.image(t, "two-ctr", twoContainers)
	return m
}

// manyDomains returns the names of n parties.
func manyDomains(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("party-%03d", i))
	}
	return names
}
