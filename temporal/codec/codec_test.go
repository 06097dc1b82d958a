package codec

import (
	"bytes"
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"
)

// folder writes files into a key folder, a new one if dir is "".
func folder(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	if dir == "" {
		dir = t.TempDir()
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
	return dir
}

func key(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, keyBytes)) + "\n"
}

func payload(t *testing.T, value any) *commonpb.Payload {
	t.Helper()
	p, err := converter.GetDefaultDataConverter().ToPayload(value)
	require.NoError(t, err)
	return p
}

func one(t *testing.T, do func([]*commonpb.Payload) ([]*commonpb.Payload, error),
	p *commonpb.Payload) *commonpb.Payload {
	t.Helper()
	result, err := do([]*commonpb.Payload{p})
	require.NoError(t, err)
	require.Len(t, result, 1)
	return result[0]
}

func TestPayloadsAreEncrypted(t *testing.T) {
	t.Parallel()
	keys, err := OpenKeys(folder(t, "", map[string]string{"old": key(1), "new": key(2), "current": "new\n"}), nil)
	require.NoError(t, err)
	codec := New(keys)
	plain := payload(t, "marked secret")
	before := proto.Clone(plain)
	sealed := one(t, codec.Encode, plain)
	require.True(t, proto.Equal(before, plain), "the input is unchanged: its owner may use it again")
	require.NotContains(t, sealed.String(), "marked secret")
	require.NotContains(t, sealed.String(), "json/plain", "its encoding is hidden too")
	require.Equal(t, "new", string(sealed.GetMetadata()["encryption-key-id"]))
	require.True(t, proto.Equal(plain, one(t, codec.Decode, sealed)))
	require.NotEqual(t, sealed.GetData(), one(t, codec.Encode, plain).GetData(),
		"the same text is never sealed to the same bytes")
	require.True(t, proto.Equal(sealed, one(t, codec.Encode, sealed)), "an encrypted payload is not encrypted again")
	require.True(t, proto.Equal(plain, one(t, codec.Decode, plain)), "payloads older than the keys are read unchanged")
}

func TestUndecryptablePayloadIsUnchanged(t *testing.T) {
	t.Parallel()
	dir := folder(t, "", map[string]string{"a": key(1), "current": "a"})
	theirs, err := OpenKeys(dir, nil)
	require.NoError(t, err)
	sealed := one(t, New(theirs).Encode, payload(t, "x"))
	for _, c := range []struct {
		reason, says string
		change       func(p *commonpb.Payload)
		keys         map[string]string
	}{
		{"The key is missing here.", `cannot decrypt a payload: the key "a" is not in `, nil,
			map[string]string{"b": key(2), "current": "b"}},
		{"Another key has its name.", `cannot decrypt a payload with the key "a"`, nil,
			map[string]string{"a": key(2), "current": "a"}},
		{"It was modified.", `or the payload was modified`, func(p *commonpb.Payload) {
			p.Data[len(p.Data)-1] ^= 1
		}, map[string]string{"a": key(1), "current": "a"}},
		{"The key ID was modified.", `cannot decrypt a payload with the key "b"`, func(p *commonpb.Payload) {
			p.Metadata["encryption-key-id"] = []byte("b")
		},
			map[string]string{"a": key(1), "b": key(1), "current": "a"}},
		{"It was truncated.", "it is truncated", func(p *commonpb.Payload) {
			p.Data = p.Data[:5]
		}, map[string]string{"a": key(1), "current": "a"}},
	} {
		var log bytes.Buffer
		keys, err := OpenKeys(folder(t, "", c.keys), slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, err, c.reason)
		p := proto.Clone(sealed).(*commonpb.Payload)
		if c.change != nil {
			c.change(p)
		}
		both, err := New(keys).Decode([]*commonpb.Payload{p, payload(t, "another")})
		require.NoError(t, err, c.reason)
		require.True(t, proto.Equal(p, both[0]), c.reason)
		require.True(t, proto.Equal(payload(t, "another"), both[1]), "the other payloads are still read")
		require.Contains(t, strings.ReplaceAll(log.String(), `\"`, `"`), c.says, c.reason)
		require.Error(t, converter.GetDefaultDataConverter().FromPayload(both[0], new(string)),
			"it cannot be mistaken for a value")
	}
}

func TestKeysAreRotatedWhileTheProcessRuns(t *testing.T) {
	t.Parallel()
	dir := folder(t, "", map[string]string{"a": key(1), "current": "a"})
	here, err := OpenKeys(dir, nil)
	require.NoError(t, err)
	first := one(t, New(here).Encode, payload(t, "first"))

	elsewhere, err := OpenKeys(folder(t, "", map[string]string{"a": key(1), "b": key(2), "current": "b"}), nil)
	require.NoError(t, err)
	second := one(t, New(elsewhere).Encode, payload(t, "second"))
	folder(t, dir, map[string]string{"b": key(2)})
	require.True(t, proto.Equal(payload(t, "second"), one(t, New(here).Decode, second)),
		"another process had the new key first: the folder is read at once")
	folder(t, dir, map[string]string{"current": "b"})
	_, err = here.files.Again()
	require.NoError(t, err)
	require.Equal(t, "b", string(one(t, New(here).Encode, payload(t, "third")).GetMetadata()["encryption-key-id"]))
	require.True(t, proto.Equal(payload(t, "first"), one(t, New(here).Decode, first)),
		"older payloads can be read as long as their key exists")

	folder(t, dir, map[string]string{"current": "c"})
	_, err = here.files.Again()
	require.ErrorContains(t, err, `names the key "c", but there is no file `+filepath.Join(dir, "c"))
	require.ErrorContains(t, here.Err(), `names the key "c"`)
	require.Equal(t, "b", string(one(t, New(here).Encode, payload(t, "fourth")).GetMetadata()["encryption-key-id"]),
		"a mistake in the folder stops nothing")
}

func TestOpenKeys_RejectsInvalidFolders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		files  map[string]string
		says   string
	}{
		{"It is empty.", nil, "has no keys: write one file per key"},
		{"The current key is missing.", map[string]string{"a": key(1), "current": "b"},
			`names the key "b", but there is no file`},
		{"A key is too short.", map[string]string{"a": "c2hvcnQ=", "current": "a"},
			"a is not a key: want 32 bytes in base64"},
		{"A key is not in base64.", map[string]string{"a": "?", "current": "a"}, "a is not a key"},
		{"A name is invalid.", map[string]string{"a b": key(1), "current": "a b"}, "is not a valid key ID"},
	} {
		_, err := OpenKeys(folder(t, "", c.files), nil)
		require.ErrorContains(t, err, c.says, c.reason)
	}
	file := filepath.Join(folder(t, "", map[string]string{"a": key(1)}), "a")
	_, err := OpenKeys(file, nil)
	require.ErrorContains(t, err, "is not a folder")
	_, err = OpenKeys(file+"-absent", nil)
	require.ErrorContains(t, err, "no such file")
}

// A mounted Secret: the files are links into a folder that is replaced as one.
func TestKeysOfAMountedSecret(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	swap := func(version string, files map[string]string) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, "..v"+version), 0o700))
		folder(t, filepath.Join(dir, "..v"+version), files)
		require.NoError(t, os.Symlink("..v"+version, filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	swap("1", map[string]string{"a": key(1), "current": "a"})
	for _, name := range []string{"a", "current"} {
		require.NoError(t, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
	}
	keys, err := OpenKeys(dir, nil)
	require.NoError(t, err)
	swap("2", map[string]string{"a": key(1), "b": key(2), "current": "b"})
	require.NoError(t, os.Symlink(filepath.Join("..data", "b"), filepath.Join(dir, "b")))
	_, err = keys.files.Again()
	require.NoError(t, err)
	id, _ := keys.current()
	require.Equal(t, "b", id)
}

func TestCodecServerAnswersOnlyTheUI(t *testing.T) {
	t.Parallel()
	keys, err := OpenKeys(folder(t, "", map[string]string{"a": key(1), "current": "a"}), nil)
	require.NoError(t, err)
	h := NewHandler(keys, HandlerOptions{Origin: "https://temporal.example/ui",
		Authenticate: func(r *http.Request) error {
			if r.Header.Get("Authorization") != "Bearer token" {
				return http.ErrNoCookie
			}
			return nil
		}})
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	remote := converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{Endpoint: server.URL,
		ModifyRequest: func(r *http.Request) error {
			r.Header.Set("Authorization", "Bearer token")
			r.Header.Set("Origin", "https://temporal.example")
			return nil
		}})
	require.True(t, proto.Equal(payload(t, "x"), one(t, remote.Decode, one(t, New(keys).Encode, payload(t, "x")))),
		"as requested by Temporal's UI")
	require.True(t, proto.Equal(payload(t, "y"), one(t, New(keys).Decode, one(t, remote.Encode, payload(t, "y")))),
		"text typed there is encrypted")

	for _, c := range []struct {
		reason, method, origin, token string
		status                        int
	}{
		{"A browser's preflight.", http.MethodOptions, "https://temporal.example", "", http.StatusNoContent},
		{"A preflight for another site's page.", http.MethodOptions, "https://evil.example", "", http.StatusForbidden},
		{"Another site's page sends the request anyway.", http.MethodPost, "https://evil.example", "Bearer token",
			http.StatusForbidden},
		{"Without the token.", http.MethodPost, "https://temporal.example", "", http.StatusUnauthorized},
		{"A program sends no origin.", http.MethodPost, "", "Bearer token", http.StatusOK},
	} {
		r := httptest.NewRequest(c.method, "/decode", strings.NewReader(`{"payloads":[]}`))
		for name, value := range map[string]string{"Origin": c.origin, "Authorization": c.token} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		require.Equal(t, c.status, answer.Code, "%s %s", c.reason, answer.Body)
		if c.method == http.MethodOptions && c.status == http.StatusNoContent {
			require.Equal(t, "https://temporal.example", answer.Header().Get("Access-Control-Allow-Origin"))
		}
	}
}

func TestKeysDecryptOnly_WithoutCurrentKey(t *testing.T) {
	t.Parallel()
	dir := folder(t, "", map[string]string{"a": key(1)})
	keys, err := OpenKeys(dir, nil)
	require.NoError(t, err)
	plain := payload(t, "x")
	require.True(t, proto.Equal(plain, one(t, New(keys).Encode, plain)), "nothing is sealed before a key is current")
	elsewhere, err := OpenKeys(folder(t, "", map[string]string{"a": key(1), "current": "a"}), nil)
	require.NoError(t, err)
	require.True(t, proto.Equal(plain, one(t, New(keys).Decode, one(t, New(elsewhere).Encode, plain))),
		"but payloads encrypted by other processes are read")
}

// fromElsewhere makes another process encrypt the workflow's input.
type fromElsewhere struct {
	blockingConverter
	codec Codec
}

func (f fromElsewhere) ToPayloads(values ...any) (*commonpb.Payloads, error) {
	plain, err := f.blockingConverter.ToPayloads(values...)
	if err != nil {
		return nil, err
	}
	sealed, err := f.codec.Encode(plain.GetPayloads())
	return &commonpb.Payloads{Payloads: sealed}, err
}

// A workflow that gets an unreadable payload stops until a process has the key; the SDK alone would fail it.
func TestWorkflowStops_AtUndecryptablePayload(t *testing.T) {
	t.Parallel()
	keys, err := OpenKeys(folder(t, "", map[string]string{"a": key(1), "current": "a"}), nil)
	require.NoError(t, err)
	sealed := one(t, New(keys).Encode, payload(t, "x"))
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetDataConverter(fromElsewhere{blockingConverter{DataConverter: converter.GetDefaultDataConverter()},
		New(keys)})
	env.ExecuteWorkflow(func(workflow.Context, string) error { return nil }, "x")
	require.ErrorContains(t, env.GetWorkflowError(), "is encrypted with a key that this process doesn't have",
		"the panic fails the workflow task")
	require.Error(t, NewDataConverter().FromPayload(sealed, new(string)), "outside of workflows it is an error")
}

func TestOriginOf(t *testing.T) {
	t.Parallel()
	for base, origin := range map[string]string{
		"https://Temporal.example/ui": "https://temporal.example", "https://t.example:443": "https://t.example",
		"http://t.example:80/":  "http://t.example",
		"http://127.0.0.1:8233": "http://127.0.0.1:8233", "https://t.example:80": "https://t.example:80",
	} {
		require.Equal(t, origin, originOf(base))
	}
}
