package kuscia

import (
	"context"
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

// created is when every object of a memory was created.
var created = time.Date(2024, 1, 17, 10, 18, 2, 0, time.UTC)

// memory is a store that holds everything in memory, by the rules of the home cluster.
type memory struct {
	mu       sync.Mutex
	versions int
	images   map[string]*kuscia.AppImage
	servings map[string]*kuscia.KusciaDeployment
	domains  []string
	// writes counts what was changed.
	writes int
	// conflicts is how many of the next updates somebody else comes before.
	conflicts int
	// broken is what every call answers.
	broken error
	// panics has every read of a serving panic.
	panics bool
}

func newMemory(domains ...string) *memory {
	return &memory{images: map[string]*kuscia.AppImage{}, servings: map[string]*kuscia.KusciaDeployment{}, domains: domains}
}

// service answers by the memory.
func (m *memory) service() *Service { return NewService(m, slog.New(slog.DiscardHandler)) }

func (m *memory) enter() func() {
	m.mu.Lock()
	return m.mu.Unlock
}

func (m *memory) stamp(o *metav1.ObjectMeta) {
	m.versions++
	m.writes++
	o.ResourceVersion = strconv.Itoa(m.versions)
}

func (m *memory) fresh(o *metav1.ObjectMeta) {
	m.stamp(o)
	o.CreationTimestamp, o.Generation, o.UID = metav1.NewTime(created), 1, types.UID("uid-"+o.ResourceVersion)
}

func notThere(name string) error { return failure.New(failure.NotFound, "%s does not exist", name) }

func changed(name string) error { return failure.New(failure.Conflict, "%s was changed", name) }

func (m *memory) ListAppImages(_ context.Context, limit int, cursor string) (items []kuscia.AppImage, next string, err error) {
	defer m.enter()()
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
	defer m.enter()()
	if m.broken != nil {
		return nil, m.broken
	}
	if image, there := m.images[name]; there {
		return image.DeepCopy(), nil
	}
	return nil, notThere(name)
}

func (m *memory) CreateAppImage(_ context.Context, image *kuscia.AppImage) error {
	defer m.enter()()
	if m.broken != nil {
		return m.broken
	}
	if m.images[image.Name] != nil {
		return changed(image.Name)
	}
	m.images[image.Name] = image.DeepCopy()
	m.fresh(&m.images[image.Name].ObjectMeta)
	return nil
}

func (m *memory) UpdateAppImage(_ context.Context, image *kuscia.AppImage) error {
	defer m.enter()()
	stored := m.images[image.Name]
	if m.interfere() || stored == nil || stored.ResourceVersion != image.ResourceVersion {
		return changed(image.Name)
	}
	m.images[image.Name] = image.DeepCopy()
	m.stamp(&m.images[image.Name].ObjectMeta)
	return nil
}

func (m *memory) DeleteAppImage(_ context.Context, name string) error {
	defer m.enter()()
	if m.images[name] == nil {
		return notThere(name)
	}
	m.writes++
	delete(m.images, name)
	return m.broken
}

func (m *memory) GetServing(_ context.Context, id string) (*kuscia.KusciaDeployment, error) {
	defer m.enter()()
	if m.panics {
		panic("broken")
	}
	if m.broken != nil {
		return nil, m.broken
	}
	if serving, there := m.servings[id]; there {
		return serving.DeepCopy(), nil
	}
	return nil, notThere(id)
}

func (m *memory) CreateServing(_ context.Context, serving *kuscia.KusciaDeployment) error {
	defer m.enter()()
	if m.servings[serving.Name] != nil {
		return changed(serving.Name)
	}
	m.servings[serving.Name] = stored(serving)
	m.fresh(&m.servings[serving.Name].ObjectMeta)
	return nil
}

// stored is the object as it comes back from an API server: empty maps are none, and quantities are in their canonical form.
func stored(serving *kuscia.KusciaDeployment) *kuscia.KusciaDeployment {
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
	defer m.enter()()
	before := m.servings[serving.Name]
	if m.interfere() || before == nil || before.ResourceVersion != serving.ResourceVersion {
		return changed(serving.Name)
	}
	after := stored(serving)
	after.Generation, after.Status = before.Generation+1, before.Status
	m.stamp(&after.ObjectMeta)
	m.servings[serving.Name] = after
	*serving = *after.DeepCopy()
	return nil
}

func (m *memory) interfere() bool {
	if m.conflicts == 0 {
		return false
	}
	m.conflicts--
	return true
}

func (m *memory) DeleteServing(_ context.Context, asked *kuscia.KusciaDeployment) error {
	defer m.enter()()
	serving := m.servings[asked.Name]
	switch {
	case serving == nil:
		return notThere(asked.Name)
	case serving.UID != asked.UID:
		return changed(asked.Name)
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

// oneContainer is the AppImage of the documents, whose container is called as their examples show it in answers.
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

// twoContainers has a template for the role server alone.
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

// sample is a memory with the parties and AppImages that the tests speak of.
func sample(t testing.TB) *memory {
	t.Helper()
	m := newMemory("alice", "bob")
	m.image(t, "sf-serving-image", oneContainer)
	m.image(t, "two-ctr", twoContainers)
	return m
}

// manyDomains are the names of n parties.
func manyDomains(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("party-%03d", i))
	}
	return names
}
