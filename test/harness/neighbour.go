package harness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/test/observer"
	"slipway.io/slipway/test/programs"
)

// Tool is a way to apply a manifest again and again.
type Tool struct {
	// Title tells them apart in the names of tests.
	Title string
	// Manager is the field manager that it writes as.
	Manager string
	// program is one of test/gitops, "" for kubectl.
	program string
	args    []string
}

// The tools: kubectl both ways, and GitOps controllers with their own libraries (test/gitops).
var (
	KubectlApply   = Tool{"KubectlApply", "kubectl-client-side-apply", "", nil}
	KubectlForce   = Tool{"KubectlForce", "kubectl", "", []string{"--server-side", "--force-conflicts"}}
	Flux           = Tool{"Flux", "kustomize-controller", "gitops-flux", nil}
	ArgoClientSide = Tool{"ArgoClientSide", "argocd-controller", "gitops-argo", nil}
	ArgoServerSide = Tool{"ArgoServerSide", "argocd-controller", "gitops-argo", []string{"--server-side"}}
)

// Tools are all of them.
var Tools = []Tool{KubectlApply, KubectlForce, Flux, ArgoClientSide, ArgoServerSide}

// Ignoring is the tool with fields that it leaves alone, each as Deployment/spec/paused. GitOps controllers know that.
func (t Tool) Ignoring(fields ...string) Tool {
	t.args = slices.Clone(t.args)
	for _, field := range fields {
		t.args = append(t.args, "--ignore", field)
	}
	return t
}

// Neighbour applies a manifest with a tool.
type Neighbour struct {
	tool     Tool
	manifest string
	kubectl  func(args ...string) (out string, code int)

	mu      sync.Mutex
	rounds  int
	ask     io.Writer
	answers *bufio.Reader
	stop    func()
}

// NeighbourResult is what a round made of one object, or would make of it.
type NeighbourResult struct {
	Object  string `json:"object"`
	Changed bool   `json:"changed"`
	Said    string `json:"said"`
}

// Neighbour starts a tool for a manifest. It does nothing until it is told to.
func (e *Engine) Neighbour(t testing.TB, tool Tool, manifest []*unstructured.Unstructured) *Neighbour {
	t.Helper()
	dir := t.TempDir()
	n := &Neighbour{tool: tool, manifest: filepath.Join(dir, "manifest.json"), stop: func() {}}
	n.Declare(t, manifest)
	t.Cleanup(n.Pause)
	if tool.program == "" {
		n.kubectl = func(args ...string) (string, int) {
			cmd := exec.Command(e.Binary("kubectl"), append(args, "--kubeconfig", e.Kubeconfig, "--cache-dir", filepath.Join(dir, "cache"))...)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return err.Error(), -1
			}
			return string(out), cmd.ProcessState.ExitCode()
		}
		return n
	}
	programs.Folder(t, "gitops")
	cmd := exec.Command(e.Binary(tool.program), append([]string{"--kubeconfig", e.Kubeconfig, "--manifest", n.manifest}, tool.args...)...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	n.ask, n.answers = in, bufio.NewReader(out)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("%s ended (%v): %s", tool.Title, err, tail(said.String()))
		}
	})
	return n
}

// Declare is what the manifest says from now on: a commit.
func (n *Neighbour) Declare(t testing.TB, manifest []*unstructured.Unstructured) {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": manifest})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(n.manifest+".new", raw, 0o600))
	require.NoError(t, os.Rename(n.manifest+".new", n.manifest))
}

// Sync does a round, which has to succeed.
func (n *Neighbour) Sync(t testing.TB) []NeighbourResult {
	t.Helper()
	return n.must(t, "sync")
}

// Diff is what a round would change, by object.
func (n *Neighbour) Diff(t testing.TB) []string {
	t.Helper()
	var changed []string
	for _, r := range n.must(t, "diff") {
		if r.Changed {
			changed = append(changed, r.Object+": "+r.Said)
		}
	}
	return changed
}

// Health is how the tool sees an object of the manifest.
func (n *Neighbour) Health(t testing.TB, object string) string {
	t.Helper()
	for _, r := range n.must(t, "health") {
		if r.Object == object {
			return r.Said
		}
	}
	return ""
}

func (n *Neighbour) must(t testing.TB, do string) []NeighbourResult {
	t.Helper()
	results, err := n.round(do)
	require.NoError(t, err, "%s: %s", n.tool.Title, do)
	return results
}

// Every does a round at once and then one each so often, until Pause. One that fails, as an outage or a refusal makes it, is followed by the next.
func (n *Neighbour) Every(interval time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	n.stop = func() {
		cancel()
		<-done
	}
	go func() {
		defer close(done)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			_, _ = n.round("sync")
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
}

// Pause ends what Every began, when the round under way is over.
func (n *Neighbour) Pause() {
	n.stop()
	n.stop = func() {}
}

// Rounds is how many rounds are over.
func (n *Neighbour) Rounds() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rounds
}

func (n *Neighbour) round(do string) ([]NeighbourResult, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.rounds++ }()
	if n.kubectl != nil {
		return n.byKubectl(do)
	}
	if _, err := fmt.Fprintln(n.ask, do); err != nil {
		return nil, err
	}
	line, err := n.answers.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var answer struct {
		Results []NeighbourResult `json:"results"`
		Error   string            `json:"error"`
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return answer.Results, nil
}

func (n *Neighbour) byKubectl(do string) ([]NeighbourResult, error) {
	verb := map[string]string{"sync": "apply", "diff": "diff"}[do]
	out, code := n.kubectl(append([]string{verb, "-f", n.manifest}, n.tool.args...)...)
	switch {
	case do == "diff" && code == 1 && strings.Contains(out, "\n+++ "):
		return []NeighbourResult{{Object: "manifest", Changed: true, Said: out}}, nil
	case code != 0:
		return nil, fmt.Errorf("kubectl %s: %s", verb, out)
	}
	return []NeighbourResult{{Object: "manifest", Said: out}}, nil
}

// services is the one kind that every route needs.
var services = schema.GroupVersionResource{Version: "v1", Resource: "services"}

// routeOf are the kinds that Route makes beside the Service.
var routeOf = map[Provider]schema.GroupVersionResource{
	Nginx: {Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}, Gateway: HTTPRoutes, Istio: VirtualServices,
}

// Manifest is what somebody has declared of a workload of Subject and of its routes, with every default spelled out: the most that a manifest can claim.
func (e *Engine) Manifest(kind Kind, name string, provider Provider) []*unstructured.Unstructured {
	e.t.Helper()
	kinds := []schema.GroupVersionResource{kind.GVR}
	if provider != NoProvider {
		kinds = append(kinds, services, routeOf[provider])
	}
	var manifest []*unstructured.Unstructured
	for _, gvr := range kinds {
		live, err := e.Dynamic(e.t).Resource(gvr).Namespace(e.Apps).Get(context.Background(), name, metav1.GetOptions{})
		require.NoError(e.t, err)
		manifest = append(manifest, declared(live))
	}
	if kind == Deployment {
		_ = unstructured.SetNestedField(manifest[0].Object, int64(0), "spec", "minReadySeconds")
	}
	return manifest
}

// declared is an object as its owner has written it.
func declared(live *unstructured.Unstructured) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: observer.Declared(live)}
	for _, field := range [][]string{{"metadata", "uid"}, {"metadata", "creationTimestamp"}, {"spec", "template", "metadata", "creationTimestamp"},
		{"spec", "clusterIP"}, {"spec", "clusterIPs"}} {
		unstructured.RemoveNestedField(o.Object, field...)
	}
	return o
}

// WithImage is a manifest whose workload runs another image.
func WithImage(manifest []*unstructured.Unstructured, image string) []*unstructured.Unstructured {
	changed := append([]*unstructured.Unstructured{manifest[0].DeepCopy()}, manifest[1:]...)
	containers, _, _ := unstructured.NestedSlice(changed[0].Object, "spec", "template", "spec", "containers")
	containers[0].(map[string]any)["image"] = image
	_ = unstructured.SetNestedSlice(changed[0].Object, containers, "spec", "template", "spec", "containers")
	return changed
}
