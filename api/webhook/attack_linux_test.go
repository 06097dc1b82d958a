package webhook

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	authorization "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/test/memory"
	"slipway.io/slipway/test/race"
)

// childAddress is the environment variable that makes the test binary serve webhooks there, until its input ends.
const childAddress = "SLIPWAY_TEST_WEBHOOKS"

func TestMain(m *testing.M) {
	if address := os.Getenv(childAddress); address != "" {
		serveAsChild(address)
		return
	}
	os.Exit(m.Run())
}

// serveAsChild serves both webhooks and writes the CA to the output.
func serveAsChild(listen string) {
	definitions := &fakeCRDs{changed: make(chan func(), 1)}
	address, _ := LocalAddress(listen)
	gate := NewGate(Gate{Engine: func(user, _ string) bool { return user == "engine" },
		Rollouts: func(context.Context, string) ([]v1beta1.Rollout, error) {
			web := v1beta1.Rollout{Spec: v1beta1.RolloutSpec{WorkloadRef: v1beta1.ObjectRef{APIVersion: "apps/v1",
				Kind: "Deployment", Name: "web"}}}
			web.Name = "web"
			return []v1beta1.Rollout{web}, nil
		},
		Publish: func(context.Context, registration.WebhookClientConfig) (time.Duration, error) { return 0, nil }})
	authors := NewAuthors(Authors{Engine: func(user, _ string) bool { return user == "engine" },
		May:     func(context.Context, authorization.SubjectAccessReviewSpec) (bool, error) { return false, nil },
		Publish: func(context.Context, registration.WebhookClientConfig) (time.Duration, error) { return 0, nil }})
	server := NewServer(Options{Listen: listen, Address: address,
		Source:    SelfSigned{Secrets: &secrets{}, Now: time.Now},
		Endpoints: []Endpoint{NewConversion(definitions), gate, authors}, Log: slog.New(slog.DiscardHandler)})
	if err := server.Start(context.Background()); err != nil {
		os.Exit(3)
	}
	for {
		if client, n := definitions.last(); n > 0 {
			fmt.Println(strconv.Quote(string(client.CABundle)))
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// child is a process that serves webhooks.
type child struct {
	t       *testing.T
	address string
	process *exec.Cmd
	client  *http.Client
}

func startChild(t *testing.T) *child {
	t.Helper()
	c := &child{t: t, address: freeAddress(t)}
	c.process = exec.Command(os.Args[0])
	c.process.Env = append(os.Environ(), childAddress+"="+c.address)
	in, err := c.process.StdinPipe()
	require.NoError(t, err)
	out, err := c.process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.process.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = c.process.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	bundle, err := strconv.Unquote(strings.TrimSpace(line))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(bundle)))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	c.client = &http.Client{Transport: transport, Timeout: time.Minute}
	return c
}

// peak returns the most memory that the process has had since the last call, in MiB.
func (c *child) peak() (mebibytes int) {
	pid := c.process.Process.Pid
	mebibytes = int(memory.Of(pid, memory.Peak) >> 20)
	require.Positive(c.t, mebibytes, "the process runs")
	require.NoError(c.t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0))
	return mebibytes
}

// post sends a body, in chunks without a length if chunked.
func (c *child) post(path string, body []byte, chunked bool) (status int, answer []byte, err error) {
	var reader io.Reader = bytes.NewReader(body)
	if chunked {
		reader = io.MultiReader(reader)
	}
	response, err := c.client.Post("https://"+c.address+path, "application/json", reader)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// edit returns the review of an edit of a Deployment by anna, as an API server sends it. template and old are JSON.
func edit(name, template, old string) []byte {
	const object = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":%q,"namespace":"shop"},"spec":{"replicas":3,"template":{"spec":%s}}}`
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1",`+
		`"kind":{"group":"apps","version":"v1","kind":"Deployment"},"resource":{"group":"apps","version":"v1","resource":"deployments"},`+
		`"name":%q,"namespace":"shop","operation":"UPDATE","userInfo":{"username":"anna","groups":["a"]},"object":`+object+
		`,"oldObject":`+object+`,"dryRun":false}}`, name, name, template, name, old)
}

// padding returns a JSON value of about that many bytes: the forms that take the most memory when they are decoded.
func padding(form string, size int) string {
	repeated := func(unit string) string { return strings.TrimSuffix(strings.Repeat(unit, size/len(unit)), ",") }
	switch form {
	case "text":
		return `"` + repeated("x") + `"`
	case "escapes":
		return `"` + repeated(`\u003c`) + `"`
	case "objects":
		return "[" + repeated(`{},`) + "]"
	case "numbers":
		return "[" + repeated(`1,`) + "]"
	case "nested":
		return repeated(strings.Repeat(`[`, 9000)+strings.Repeat(`]`, 9000)+",") + ""
	}
	var members strings.Builder
	members.WriteString(`{"a":1`)
	for i := 0; members.Len() < size; i++ {
		fmt.Fprintf(&members, `,"%x":{"b":[]}`, size-i) // not in order
	}
	return members.String() + "}"
}

func listOf(value string) string { return "[" + value + "]" }

// conversionOf returns the review of a list of n Rollouts, each with this status.
func conversionOf(n int, status string) []byte {
	rollout := `{"apiVersion":"rollouts.kruise.io/v1beta1","kind":"Rollout","metadata":{"name":"a","namespace":"shop"},"spec":{"workloadRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"a"},"strategy":{"canary":{"steps":[{"traffic":"5%","replicas":1}]}}},"status":` + status + `}`
	return []byte(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u-1","desiredAPIVersion":"rollouts.kruise.io/v1alpha1","objects":[` +
		strings.TrimSuffix(strings.Repeat(rollout+",", n), ",") + `]}}`)
}

// maxPeak is how much memory, in MiB, the process of a test may take: the limit of the chart less what a server takes
// in a big cluster.
const maxPeak = 290

// Anyone who reaches the listener can send anything, several times at once: the process keeps its memory, and answers.
func TestServer_BoundsMemory_WhateverIsSent(t *testing.T) {
	race.SkipBounds(t)
	c := startChild(t)
	t.Logf("at the start: %d MiB", c.peak())
	for _, form := range []string{"text", "escapes", "objects", "numbers", "nested", "members"} {
		sizes := []int{1, 7}
		if form == "text" {
			sizes = []int{1, 4, 7, 16, 60}
		}
		for _, size := range sizes {
			value := padding(form, size<<20)
			if form == "nested" {
				value = listOf(value)
			}
			for path, body := range map[string][]byte{
				PathMutate: edit("web", `{"containers":[]}`, value), PathConvert: conversionOf(1, value),
				PathAuthors: edit("web", `{"containers":[]}`, value)} {
				began := time.Now()
				c.attack(path, body, form)
				peak, took := c.peak(), time.Since(began)
				t.Logf("%s: 4 with %d MiB of %s: %d MiB, %s", path, size, form, peak, took.Round(time.Millisecond))
				require.Less(t, peak, maxPeak, "%s: %d MiB of %s", path, size, form)
				require.Less(t, took, 90*time.Second, "%s: %d MiB of %s", path, size, form)
			}
		}
	}
	status, answer, err := c.post(PathMutate, edit("web", `{"a":1}`, `{"a":2}`), false)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "%s", answer)
}

// attack sends a body four times at once, some without a length.
func (c *child) attack(path string, body []byte, form string) {
	var work sync.WaitGroup
	for i := range 4 {
		work.Go(func() {
			status, answer, err := c.post(path, body, i%2 == 1)
			if err != nil || status != http.StatusOK {
				c.t.Errorf("%s, %s: %d, %v: %.200s", path, form, status, err, answer)
			}
		})
	}
	work.Wait()
}

// review posts an edit and returns the API server's answer.
func (c *child) review(body []byte, chunked bool) *admission.AdmissionResponse {
	c.t.Helper()
	status, answer, err := c.post(PathMutate+"?timeout=3s", body, chunked)
	require.NoError(c.t, err)
	require.Equal(c.t, http.StatusOK, status, "%s", answer)
	var got admission.AdmissionReview
	require.NoError(c.t, json.Unmarshal(answer, &got))
	require.EqualValues(c.t, "u-1", got.Response.UID, "the API server compares it")
	return got.Response
}

// An edit that is padded beyond the bound is refused by an answer: the API server would ignore an error. The largest
// object that it stores, before and after the edit, is held as usual.
func TestGate_RefusesPaddedEdits(t *testing.T) {
	race.SkipBounds(t)
	c := startChild(t)
	for _, chunked := range []bool{false, true} {
		largest := padding("text", 3<<19)
		held := c.review(edit("web", `{"v":2,"env":`+largest+`}`, `{"v":1,"env":`+largest+`}`), chunked)
		require.True(t, held.Allowed)
		require.Contains(t, string(held.Patch), "slipway.io", "%s", held.Patch)
		padded := padding("escapes", 9<<20)
		refused := c.review(edit("web", `{"v":2,"env":`+padded+`}`, `{"v":1,"env":`+padded+`}`), chunked)
		require.False(t, refused.Allowed)
		require.Contains(t, refused.Result.Message, "Deployment shop/web can't be held by its Rollout: the review has more "+
			"than 8 MiB of JSON: make the workload smaller")
		free := c.review(edit("other", `{"v":2,"env":`+padded+`}`, `{"v":1,"env":`+padded+`}`), chunked)
		require.True(t, free.Allowed, "no Rollout names it")
		engine := bytes.Replace(edit("web", padded, padded), []byte(`"anna"`), []byte(`"engine"`), 1)
		require.True(t, c.review(engine, chunked).Allowed, "the engine's edits pass")
	}
}

// What is too large to be checked is refused by an answer, and so is an object with too many names and values.
func TestAuthors_RefusesPaddedEdits(t *testing.T) {
	race.SkipBounds(t)
	c := startChild(t)
	for _, value := range []string{padding("escapes", 9<<20), padding("objects", 1<<20)} {
		status, answer, err := c.post(PathAuthors, edit("web", value, value), false)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, "%s", answer)
		var got admission.AdmissionReview
		require.NoError(t, json.Unmarshal(answer, &got))
		require.False(t, got.Response.Allowed)
		require.Contains(t, got.Response.Result.Message, "more than")
	}
}

// A review that finds no room in time is refused by an answer, before the API server stops waiting.
func TestGate_RefusesEdits_WhenThereIsNoRoom(t *testing.T) {
	race.SkipBounds(t)
	c := startChild(t)
	for range 3 { // clients that declare the largest body, and send nothing
		conn, err := tls.Dial("tcp", c.address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // only sends
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", maxReview)
		require.NoError(t, err)
	}
	time.Sleep(200 * time.Millisecond) // they have taken the room
	began := time.Now()
	refused := c.review(edit("web", `{"v":2}`, `{"v":1}`), false)
	require.False(t, refused.Allowed)
	require.Contains(t, refused.Result.Message, "the server is busy with other reviews")
	require.Less(t, time.Since(began), 3*time.Second, "the API server waits as long")
	require.Eventually(t, func() bool {
		return c.review(edit("web", `{"v":2}`, `{"v":1}`), false).Allowed
	}, patience, 100*time.Millisecond, "they have 5 s for their bodies")
}

// A list of 5,000 Rollouts with long statuses is converted; one that is too large is refused with advice.
func TestConversion_ConvertsLargeLists(t *testing.T) {
	race.SkipBounds(t)
	c := startChild(t)
	message := fmt.Sprintf(`{"message":%q}`, strings.Repeat("waiting ", 545))
	body := conversionOf(5000, message)
	require.Greater(t, len(body), 5000*4600)
	answer := c.convert(body)
	require.Equal(t, metav1.StatusSuccess, answer.Result.Status, answer.Result.Message)
	require.Len(t, answer.ConvertedObjects, 5000)
	peak := c.peak()
	t.Logf("5,000 Rollouts in %d MiB: %d MiB", len(body)>>20, peak)
	require.Less(t, peak, maxPeak)
	answer = c.convert(conversionOf(6000, message))
	require.Equal(t, metav1.StatusFailure, answer.Result.Status)
	require.Contains(t, answer.Result.Message, "list fewer Rollouts at once")
}

func (c *child) convert(body []byte) *apiextensionsv1.ConversionResponse {
	c.t.Helper()
	status, raw, err := c.post(PathConvert, body, false)
	require.NoError(c.t, err)
	require.Equal(c.t, http.StatusOK, status, "%.300s", raw)
	var review apiextensionsv1.ConversionReview
	require.NoError(c.t, json.Unmarshal(raw, &review))
	require.EqualValues(c.t, "u-1", review.Response.UID)
	return review.Response
}
