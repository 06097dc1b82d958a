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

// Tool is a program that applies a manifest repeatedly.
type Tool struct {
	// Title is unique and is part of subtest names.
	Title string
	// Manager is the tool's field manager.
	Manager string
	// program is one of test/gitops, "" for kubectl.
	program string
	args    []string
}

// The tools: kubectl with client-side and server-side apply, and GitOps controllers with their own libraries
// (test/gitops).
var (
	KubectlApply   = Tool{"KubectlApply", "kubectl-client-side-apply", "", nil}
	KubectlForce   = Tool{"KubectlForce", "kubectl", "", []string{"--server-side", "--force-conflicts"}}
	Flux           = Tool{"Flux", "kustomize-controller", "gitops-flux", nil}
	ArgoClientSide = Tool{"ArgoClientSide", "argocd-controller", "gitops-argo", nil}
	ArgoServerSide = Tool{"ArgoServerSide", "argocd-controller", "gitops-argo", []string{"--server-side"}}
)

// Tools are all tools.
var Tools = []Tool{KubectlApply, KubectlForce, Flux, ArgoClientSide, ArgoServerSide}

// Ignoring returns the tool with fields that it does not apply, each in the form Deployment/spec/paused. Only GitOps
// controllers support that.
func (t Tool) Ignoring(fields ...string) Tool {
	t.args = slices.Clone(t.args)
	for _, field := range fields {
		t.args = append(t.args, "--ignore", field)
	}
	return t
}

// Applier applies a manifest with a tool.
type Applier struct {
	tool     Tool
	manifest string
	kubectl  func(args ...string) (out string, code int)

	mu      sync.Mutex
	rounds  int
	ask     io.Writer
	answers *bufio.Reader
	stop    func()
}

// ApplyResult is the result of a round for one object. For a diff it describes what the round would change.
type ApplyResult struct {
	Object  string `json:"object"`
	Changed bool   `json:"changed"`
	Message string `json:"said"`
}

// StartApplier starts a tool for a manifest. The tool runs a round only on request.
func (e *Engine) StartApplier(t testing.TB, tool Tool, manifest []*unstructured.Unstructured) *Applier {
	t.Helper()
	dir := t.TempDir()
	n := &Applier{tool: tool, manifest: filepath.Join(dir, "manifest.json"), stop: func() {}}
	n.Declare(t, manifest)
	t.Cleanup(n.Pause)
	if tool.program == "" {
		n.kubectl = func(args ...string) (string, int) {
			cmd := exec.Command(e.Binary("kubectl"),
				append(args, "--kubeconfig", e.Kubeconfig, "--cache-dir", filepath.Join(dir, "cache"))...)
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
	cmd := exec.Command(e.Binary(tool.program), append([]string{"--kubeconfig", e.Kubeconfig, "--manifest", n.manifest},
		tool.args...)...)
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

// Declare replaces the manifest, like a commit.
func (n *Applier) Declare(t testing.TB, manifest []*unstructured.Unstructured) {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": manifest})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(n.manifest+".new", raw, 0o600))
	require.NoError(t, os.Rename(n.manifest+".new", n.manifest))
}

// Sync runs a round, which must succeed.
func (n *Applier) Sync(t testing.TB) []ApplyResult {
	t.Helper()
	return n.mustRound(t, "sync")
}

// Diff returns what a round would change, by object.
func (n *Applier) Diff(t testing.TB) []string {
	t.Helper()
	var changed []string
	for _, r := range n.mustRound(t, "diff") {
		if r.Changed {
			changed = append(changed, r.Object+": "+r.Message)
		}
	}
	return changed
}

// Health returns the tool's health status of an object of the manifest.
func (n *Applier) Health(t testing.TB, object string) string {
	t.Helper()
	for _, r := range n.mustRound(t, "health") {
		if r.Object == object {
			return r.Message
		}
	}
	return ""
}

func (n *Applier) mustRound(t testing.TB, do string) []ApplyResult {
	t.Helper()
	results, err := n.round(do)
	require.NoError(t, err, "%s: %s", n.tool.Title, do)
	return results
}

// SyncEvery runs a round at once and then one per interval, until Pause. A round that fails because of an outage or a
// refusal does not end the series.
func (n *Applier) SyncEvery(interval time.Duration) {
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

// Pause ends SyncEvery after the current round.
func (n *Applier) Pause() {
	n.stop()
	n.stop = func() {}
}

// Rounds returns the number of completed rounds.
func (n *Applier) Rounds() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rounds
}

func (n *Applier) round(do string) ([]ApplyResult, error) {
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
		Results []ApplyResult `json:"results"`
		Error   string        `json:"error"`
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return answer.Results, nil
}

func (n *Applier) byKubectl(do string) ([]ApplyResult, error) {
	verb := map[string]string{"sync": "apply", "diff": "diff"}[do]
	out, code := n.kubectl(append([]string{verb, "-f", n.manifest}, n.tool.args...)...)
	switch {
	case do == "diff" && code == 1 && strings.Contains(out, "\n+++ "):
		return []ApplyResult{{Object: "manifest", Changed: true, Message: out}}, nil
	case code != 0:
		return nil, fmt.Errorf("kubectl %s: %s", verb, out)
	}
	return []ApplyResult{{Object: "manifest", Message: out}}, nil
}

// services is the resource of Services, which every route needs.
var services = schema.GroupVersionResource{Version: "v1", Resource: "services"}

// routeOf maps a provider to the kind that Route creates in addition to the Service.
var routeOf = map[Provider]schema.GroupVersionResource{
	Nginx: {Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}, Gateway: HTTPRoutes,
	Istio: VirtualServices,
}

// Manifest returns the declaration of a workload of Subject and its routes with every default spelled out: the most
// fields that a manifest can own.
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

// declared returns an object without the fields that the API server and the engine set.
func declared(live *unstructured.Unstructured) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: observer.Declared(live)}
	for _, field := range [][]string{{"metadata", "uid"}, {"metadata", "creationTimestamp"},
		{"spec", "template", "metadata", "creationTimestamp"},
		{"spec", "clusterIP"}, {"spec", "clusterIPs"}} {
		unstructured.RemoveNestedField(o.Object, field...)
	}
	return o
}

// WithImage returns the manifest with another image for its workload.
func WithImage(manifest []*unstructured.Unstructured, image string) []*unstructured.Unstructured {
	changed := append([]*unstructured.Unstructured{manifest[0].DeepCopy()}, manifest[1:]...)
	containers, _, _ := unstructured.NestedSlice(changed[0].Object, "spec", "template", "spec", "containers")
	containers[0].(map[string]any)["image"] = image
	_ = unstructured.SetNestedSlice(changed[0].Object, containers, "spec", "template", "spec", "containers")
	return changed
}
