package kuscia

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/kuscia/kusciapb"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// post sends a body as JSON.
func post(h http.Handler, path, body string) *httptest.ResponseRecorder {
	return postAs(h, path, "application/json", strings.NewReader(body))
}

func postAs(h http.Handler, path, contentType string, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1"+path, body)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func handler(m *memory) http.Handler { return NewHandler(m.service(), Security{}) }

// document returns a body from Kuscia's document kuscia-serving-api.
func document(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return string(text)
}

const (
	createPath, updatePath, deletePath = "/api/v1/serving/create", "/api/v1/serving/update", "/api/v1/serving/delete"
	queryPath, batchPath               = "/api/v1/serving/query", "/api/v1/serving/status/batchQuery"
	success                            = `{"status":{"code":0,"message":"success","details":[]}}`
)

// requireBody compares bytes: Kuscia's own shell client searches the response text.
func requireBody(t *testing.T, want string, answer *httptest.ResponseRecorder, why ...any) {
	t.Helper()
	require.Equal(t, want, answer.Body.String(), why...)
}

// TestKusciaDocumentExamples sends the request bodies of Kuscia's document, and compares the responses byte for byte,
// except for white space. There are two deviations: endpoints are in the order of the template, where the document has
// two orders, and parties have the later field\n// service_name_prefix.
func TestKusciaDocumentExamples(t *testing.T) {
	t.Parallel()
	m := sample(t)
	h := handler(m)
	requireBody(t, success, post(h, createPath, document(t, "create.json")))
	m.servings["serving-01"].Status = kuscia.KusciaDeploymentStatus{Phase: kuscia.PhaseProgressing, TotalParties: 2,
		ObservedGeneration:      1,
		PartyDeploymentStatuses: map[string]map[string]kuscia.PartyDeploymentStatus{}}
	for _, domain := range m.domains {
		m.servings["serving-01"].Status.PartyDeploymentStatuses[domain] =
			map[string]kuscia.PartyDeploymentStatus{"serving-01": {
				Phase: kuscia.PhaseProgressing, Replicas: 1, UnavailableReplicas: 1, UpdatedReplicas: 1,
				ObservedAt: &observed, CreationTimestamp: &metav1.Time{Time: created}}}
	}
	for path, file := range map[string]string{queryPath: "query-answer.json", batchPath: "batch-query-answer.json"} {
		body := `{"serving_id": "serving-01"}`
		if path == batchPath {
			body = `{"serving_ids": ["serving-01"]}`
		}
		answer := post(h, path, body)
		require.Equal(t, "application/json; charset=utf-8", answer.Header().Get("Content-Type"))
		var compact bytes.Buffer
		require.NoError(t, json.Compact(&compact, []byte(document(t, file))))
		require.Equal(t, compact.String(), answer.Body.String(), path)
	}
	requireBody(t, success, post(h, updatePath, document(t, "update.json")))
	requireBody(t, success, post(h, deletePath, `{"serving_id": "serving-01"}`))
}

func TestResponses_ByteForByte(t *testing.T) {
	t.Parallel()
	m := running(t)
	m.image(t, "bare", "image: {name: app, tag: v1}\ndeployTemplates: [{name: t, spec: {containers: [{name: c, "+
		"readinessProbe: {httpGet: {port: 80}}}]}}]")
	h := handler(m)
	cases := map[string]struct{ reason, path, body, want string }{
		"NoData": {"A response without data has null.", queryPath, `{"serving_id":"nope"}`,
			`{"status":{"code":11601,"message":"kusciadeployments.kuscia.secretflow \"nope\" not found","details":[]},"data":null}`},
		"NoServing": {"An empty list is a list.", batchPath, `{"serving_ids":["nope"]}`,
			`{"status":{"code":0,"message":"success","details":[]},"data":{"servings":[]}}`},
		"Health": {"Health has the same form as other operations.", "/healthZ", `{}`,
			`{"status":{"code":0,"message":"success","details":[]},"data":{"ready":true}}`},
		"Serving": {"Unset replicas are absent, counts of 0 are present, one name is in camel case.", queryPath,
			`{"serving_id":"s1"}`,
			`{"status":{"code":0,"message":"success","details":[]},"data":{"serving_input_config":"{\"a\":1}","initiator":"alice","parties":[` +
				`{"domain_id":"alice","role":"","app_image":"sf-serving-image","update_strategy":{"type":"RollingUpdate","max_surge":"1","max_unavailable":"1"},` +
				`"resources":[{"container_name":"secretflow","min_cpu":"","max_cpu":"","min_memory":"","max_memory":""}],"service_name_prefix":""},` +
				`{"domain_id":"bob","role":"server","app_image":"two-ctr","replicas":2,"update_strategy":{"type":"RollingUpdate","max_surge":"25%","max_unavailable":"25%"},` +
				`"resources":[{"container_name":"main","min_cpu":"100m","max_cpu":"","min_memory":"","max_memory":""},{"container_name":"side","min_cpu":"100m","max_cpu":"1","min_memory":"","max_memory":""}],"service_name_prefix":""}],` +
				`"status":{"state":"Pending","reason":"","message":"","total_parties":2,"available_parties":0,"create_time":"2024-01-17T10:18:02Z","party_statuses":[` +
				`{"domain_id":"alice","role":"","state":"Pending","replicas":1,"available_replicas":0,"unavailable_replicas":1,"updatedReplicas":0,"create_time":"","endpoints":[` +
				`{"port_name":"service","scope":"Cluster","endpoint":"s1-service.alice.svc"},{"port_name":"internal","scope":"Domain","endpoint":"s1-internal.alice.svc:53510"},` +
				`{"port_name":"brpc-builtin","scope":"Domain","endpoint":"s1-brpc-builtin.alice.svc:53511"}]},` +
				`{"domain_id":"bob","role":"server","state":"Pending","replicas":2,"available_replicas":0,"unavailable_replicas":2,"updatedReplicas":0,"create_time":"","endpoints":[` +
				`{"port_name":"service","scope":"Cluster","endpoint":"s1-server-service.bob.svc"}]}]}}}`},
		"AppImage": {"A 64-bit number is text, an absent message null, an absent list empty.", "/api/v1/appimage/query",
			`{"name":"bare"}`,
			`{"status":{"code":0,"message":"success","details":[]},"data":{"name":"bare","image":{"name":"app","tag":"v1","id":"","sign":""},"config_templates":{},` +
				`"deploy_templates":[{"name":"t","role":"","replicas":0,"restart_policy":"","containers":[{"name":"c","command":[],"args":[],"working_dir":"","config_volume_mounts":[],` +
				`"ports":[],"env_from":[],"env":[],"resources":null,"liveness_probe":null,"readiness_probe":{"exec":null,"http_get":{"path":"","port":"80","host":"","scheme":"","http_headers":[]},` +
				`"tcp_socket":null,"grpc":null,"initial_delay_seconds":0,"timeout_seconds":0,"period_seconds":0,"success_threshold":0,"failure_threshold":0,` +
				`"termination_grace_period_seconds":"0"},"startup_probe":null,"image_pull_policy":""}]}]}}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := post(h, c.path, c.body)
			require.Equal(t, http.StatusOK, answer.Code)
			require.Equal(t, c.want, answer.Body.String(), c.reason)
		})
	}
}

// TestRequestBodies_LikeKuscia checks which bodies are accepted, and the errors for others, as in Kuscia's binder.
func TestRequestBodies_LikeKuscia(t *testing.T) {
	t.Parallel()
	none := `{"status":{"code":11100,"message":"serving id can not be empty","details":[]}}`
	odd := func(message string) string {
		raw, err := json.Marshal(message)
		require.NoError(t, err)
		return `{"status":{"code":11101,"message":` + string(raw) + `}}`
	}
	party := `"initiator":"alice","parties":[{"domain_id":"alice","app_image":"sf-serving-image"`
	cases := map[string]struct{ reason, body, want string }{
		"CamelCase": {"Both spellings of a field are accepted.",
			`{"servingId":"s9","initiator":"alice","parties":[{"domainId":"alice","appImage":"sf-serving-image"}]}`,
			success},
		"UnknownField": {"Unknown fields of newer clients are ignored.",
			`{"serving_id":"s9","foo":{"bar":[1]},` + party + `,"baz":1}]}`, success},
		"TextNumber": {"A number may be text.", `{"serving_id":"s9",` + party + `,"replicas":"2"}]}`, success},
		"Nulls": {"null means absent.",
			`{"serving_id":"s9","header":null,"serving_input_config":null,` + party +
				`,"role":null,"replicas":null,"update_strategy":null,"resources":null}]}`, success},
		"Null": {"null alone is an empty request.", `null`, none},
		"Twice": {"The last one of repeated keys counts.",
			`{"serving_id":"A_","serving_id":"s9",` + party + `}]}`, success},
		"Trailing": {"Text after the first object is ignored.",
			`{"serving_id":"s9",` + party + `}]} {"x":1} rest`, success},
		"NullInMap": {"A null header is accepted.",
			`{"serving_id":"s9","header":{"custom_headers":{"a":null}},` + party + `}]}`, success},
		"NullInMapAndUnknown": {"Unknown fields and a null header together are refused.",
			`{"foo":1,"header":{"custom_headers":{"a":null}}}`, odd(`json: unknown field "foo"`)},
		"WrongType": {"The error is that of encoding/json.", `{"serving_id":1}`,
			odd("json: cannot unmarshal number into Go struct field CreateServingRequest.serving_id of type string")},
		"Empty": {"An empty body is not JSON.", ``, odd("EOF")},
		"Broken": {"The error names the position.", `{bad`,
			odd("invalid character 'b' looking for beginning of object key string")},
		"List": {"A list is not a request.", `[]`,
			odd("json: cannot unmarshal array into Go value of type kusciapb.CreateServingRequest")},
		"NullParty": {"Kuscia panics here; the code is the same.",
			`{"serving_id":"s9","initiator":"alice","parties":[null]}`,
			odd("doBizProcess panic, err: parties[0] is null")},
		"NullResource": {"A nested null.",
			`{"serving_id":"s9","initiator":"alice","parties":[{"resources":[{},null]}]}`,
			odd("doBizProcess panic, err: parties[0].resources[1] is null")},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := post(handler(sample(t)), createPath, c.body)
			require.Equal(t, http.StatusOK, answer.Code)
			require.Equal(t, c.want, answer.Body.String(), c.reason)
			require.Equal(t, "application/json; charset=utf-8", answer.Header().Get("Content-Type"))
		})
	}
}

func TestContentType_DecidesDecoding(t *testing.T) {
	t.Parallel()
	h := handler(running(t))
	found := `{"serving_id":"s1"}`
	none := `{"status":{"code":11100,"message":"serving id can not be empty","details":[]},"data":null}`
	cases := map[string]struct {
		reason, contentType string
		read                bool
	}{
		"None":        {"A missing type means JSON.", "", true},
		"JSON":        {"JSON with parameters.", "application/json; charset=utf-8", true},
		"Plain":       {"Plain text without parameters means JSON.", "text/plain", true},
		"PlainUTF8":   {"Plain text with parameters is not read.", "text/plain; charset=utf-8", false},
		"CurlDefault": {"A form is not read.", "application/x-www-form-urlencoded", false},
		"Other":       {"Other types are not read.", "application/yaml", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := postAs(h, queryPath, c.contentType, strings.NewReader(found))
			require.Equal(t, http.StatusOK, answer.Code)
			require.Equal(t, "application/json; charset=utf-8", answer.Header().Get("Content-Type"))
			if c.read {
				require.Contains(t, answer.Body.String(), `"code":0`, c.reason)
			} else {
				require.Equal(t, none, answer.Body.String(), c.reason)
			}
		})
	}
}

func TestProtobufBodies(t *testing.T) {
	t.Parallel()
	m := running(t)
	h := handler(m)
	raw, err := proto.Marshal(&kusciapb.QueryServingRequest{ServingId: "s1"})
	require.NoError(t, err)
	require.Equal(t, []byte{0x12, 0x02, 's', '1'}, raw, "the ID is field 2 on the wire")
	answer := postAs(h, queryPath, "application/x-protobuf", bytes.NewReader(raw))
	require.Equal(t, "application/x-protobuf", answer.Header().Get("Content-Type"))
	var got kusciapb.QueryServingResponse
	require.NoError(t, proto.Unmarshal(answer.Body.Bytes(), &got))
	require.True(t, proto.Equal(query(t, m, "s1"), &got), "the same answer as in JSON")

	answer = postAs(h, queryPath, "application/x-protobuf", strings.NewReader("\x12"))
	require.Equal(t, "application/x-protobuf", answer.Header().Get("Content-Type"))
	require.Contains(t, answer.Body.String(), `{"status":{"code":11101,"message":"proto:`,
		"a framework error is always JSON")
}

func TestPathsAndMethods(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, method, path, token string
		code                        int
		body, contentType, location string
	}{
		"Get": {"All operations use POST.", http.MethodGet, queryPath, secret, 404, "404 page not found",
			"text/plain", ""},
		"Unknown": {"An unknown path is not found.", http.MethodPost, "/api/v1/serving/other", secret, 404,
			"404 page not found", "text/plain", ""},
		"NoToken": {"The token is checked before the path.", http.MethodPost, "/api/v1/serving/other", "", 401,
			"", "", ""},
		"GetNoToken": {"The token is checked before the method.", http.MethodGet, queryPath, "", 401, "", "", ""},
		"BadToken":   {"Tokens are compared byte for byte.", http.MethodPost, queryPath, strings.ToUpper(secret), 401, "", "", ""},
		"Health":     {"Health requires the token, too.", http.MethodPost, "/healthZ", "", 401, "", "", ""},
		"Slash": {"The method and the body are kept.", http.MethodPost, queryPath + "/?a=b", secret, 307, "",
			"", queryPath + "?a=b"},
		"SlashElsewhere": {"Unknown paths are not redirected.", http.MethodPost, "/api/v1/other/", secret, 404,
			"404 page not found", "text/plain", ""},
	}
	h := NewHandler(sample(t).service(), Security{Token: lock(t)})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(c.method, "http://127.0.0.1"+c.path, nil)
			if c.token != "" {
				r.Header.Set("Token", c.token)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, c.code, w.Code, c.reason)
			require.Equal(t, c.body, w.Body.String(), c.reason)
			require.Equal(t, c.contentType, w.Header().Get("Content-Type"))
			require.Equal(t, c.location, w.Header().Get("Location"))
		})
	}
}

func TestHandler_ReturnsError_WhenOperationPanics(t *testing.T) {
	t.Parallel()
	m := sample(t)
	m.panics = true
	answer := post(handler(m), queryPath, `{"serving_id":"s1"}`)
	require.Equal(t, http.StatusOK, answer.Code)
	requireBody(t, `{"status":{"code":11101,"message":"doBizProcess panic, err: broken"}}`, answer)
}

func TestLargeBodies(t *testing.T) {
	t.Parallel()
	m := sample(t)
	h := handler(m)
	template := strings.Repeat("x", 1<<20)
	body := `{"name":"large","image":{"name":"app","tag":"v1"},"config_templates":{"a":"` + template +
		`"},"deploy_templates":[{"name":"t","containers":[{"name":"c"}]}]}`
	requireBody(t, success, post(h, "/api/v1/appimage/create", body), "1 MiB and more")
	require.Len(t, m.images["large"].Spec.ConfigTemplates["a"], 1<<20)
	require.Contains(t, post(h, "/api/v1/appimage/query", `{"name":"large"}`).Body.String(), template)

	answer := post(h, createPath, `{"serving_input_config":"`+strings.Repeat("x", maxBody)+`"}`)
	require.Equal(t, http.StatusOK, answer.Code)
	requireBody(t,
		`{"status":{"code":11100,"message":"the body is larger than 2097152 bytes: nothing so large can be kept; let the application fetch what is large"}}`, answer)
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("removed") }

func TestHandler_ReturnsError_WhenBodyIsIncomplete(t *testing.T) {
	t.Parallel()
	requireBody(t, `{"status":{"code":11101,"message":"removed"}}`,
		postAs(handler(sample(t)), queryPath, "", brokenReader{}))
}

func TestQueryServing_IsDeterministic(t *testing.T) {
	t.Parallel()
	h := handler(running(t))
	first := post(h, queryPath, `{"serving_id":"s1"}`).Body.String()
	for range 50 {
		require.Equal(t, first, post(h, queryPath, `{"serving_id":"s1"}`).Body.String(),
			"map order does not affect the response")
	}
}
