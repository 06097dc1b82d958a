package e2e

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
)

// sendRequest sends a request with headers of the form "Name: value". A Host header also sets the request's host.
func sendRequest(t *testing.T, method, address, body string, headers ...string) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	require.NoError(t, err)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Host" {
			request.Host = value
		}
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

// A full engine rejects every write that a page in a browser on the engine's machine can send.
func TestLongAPI_RejectsWrites_FromBrowserPages(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Start(t, harness.Options{})
	for reason, headers := range map[string][]string{
		"a simple request, which a browser sends without a preflight": {"Content-Type: text/plain",
			"Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"},
		"an old browser, which sends only its origin": {"Content-Type: text/plain",
			"Origin: https://evil.example"},
		"a page whose name resolves to this machine": {"Content-Type: application/json",
			"Host: evil.example", "Origin: http://evil.example"},
		"a request with nothing but a browser's user agent": {"Content-Type: text/plain",
			"User-Agent: Mozilla/5.0 (X11; Linux x86_64)"},
	} {
		for _, api := range []string{e.KusciaURL, e.URL} {
			name := harness.RandomName("image")
			image := `{"name":"` + name +
				`","image":{"name":"registry.test/app","tag":"v1"},"deploy_templates":[{"name":"t","containers":[{"name":"c"}]}]}`
			_, answer := sendRequest(t, http.MethodPost, api+"/api/v1/appimage/create", image, headers...)
			require.NotContains(t, answer, `"code":0,`, "%s, to %s", reason, api)
			require.EqualValues(t, 13105, kusciaCode(t, e.KusciaURL+"/api/v1/appimage/query", `{"name":"`+name+`"}`),
				"%s, to %s: it was created", reason, api)
			status, answer := sendRequest(t, http.MethodPut, e.URL+"/api/v1/plans/"+name, "deployPlanItems: []\n",
				headers...)
			require.Contains(t, []int{http.StatusForbidden, http.StatusUnsupportedMediaType}, status, "%s: %s", reason,
				answer)
		}
	}
	name := harness.RandomName("image")
	image := `{"name":"` + name +
		`","image":{"name":"registry.test/app","tag":"v1"},"deploy_templates":[{"name":"t","containers":[{"name":"c"}]}]}`
	_, answer := sendRequest(t, http.MethodPost, e.KusciaURL+"/api/v1/appimage/create", image,
		"Content-Type: text/plain", "User-Agent: curl/8.5.0")
	require.Contains(t, answer, `"code":0,`, "scripts written for Kuscia's API still work")
	require.Zero(t, kusciaCode(t, e.KusciaURL+"/api/v1/appimage/delete", `{"name":"`+name+`"}`))
}

// A server that listens on every address of this machine refuses to start without a token, and requires the token once
// it has one.
func TestLongServer_RequiresToken_WhenListeningBeyondLoopback(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Start(t, harness.Options{})
	port := harness.FreePort(t)
	open := []string{"--listen", "0.0.0.0:" + port, "--kuscia-listen=", "--kuscia-grpc-listen="}
	refused := e.Server(harness.Options{Args: open})
	require.Eventually(t, refused.Ended, harness.Patience, harness.Tick, "an open API is served")
	require.Contains(t, refused.Output(), "--listen 0.0.0.0:"+port+
		" is reachable from other machines without authentication: set --api-token-file")

	file := filepath.Join(t.TempDir(), "token")
	e.Server(harness.Options{Args: append(open, "--api-token-file", file)})
	api := "http://127.0.0.1:" + port
	require.Eventually(t, func() bool {
		return slipway(e, "healthcheck", api+"/readyz") == nil
	}, harness.Patience, harness.Tick,
		"a health check needs no token")
	token, err := os.ReadFile(file)
	require.NoError(t, err)
	right := "Authorization: Bearer " + string(token)
	for _, address := range append(reachableAddresses(t), "127.0.0.1") {
		own := "http://" + net.JoinHostPort(address, port)
		status, answer := sendRequest(t, http.MethodGet, own+"/api/v1/plans", "", right)
		require.Equal(t, http.StatusOK, status, "%s is the server's own address: %s", address, answer)
		status, _ = sendRequest(t, http.MethodGet, own+"/api/v1/plans", "")
		require.Equal(t, http.StatusUnauthorized, status, address)
		status, _ = sendRequest(t, http.MethodGet, own+"/metrics", "", "Authorization: Bearer wrong")
		require.Equal(t, http.StatusUnauthorized, status, address)
		status, _ = sendRequest(t, http.MethodGet, own+"/api/v1/plans", "", right, "Host: evil.example")
		require.Equal(t, http.StatusForbidden, status, address)
		status, _ = sendRequest(t, http.MethodGet, own+"/healthz", "")
		require.Equal(t, http.StatusOK, status, address)
	}

	without := slipway(e, "plan", "list", "--api", api)
	require.ErrorContains(t, without, "this engine requires a token")
	require.ErrorContains(t, without, "Set the engine's token with --api-token-file or SLIPWAY_API_TOKEN_FILE")
	require.NoError(t, slipway(e, "plan", "list", "--api", api, "--api-token-file", file))
}

// reachableAddresses returns this machine's IPv4 addresses that other machines can reach.
func reachableAddresses(t *testing.T) (reachable []string) {
	t.Helper()
	all, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, address := range all {
		if network, ok := address.(*net.IPNet); ok && network.IP.To4() != nil && !network.IP.IsLoopback() {
			reachable = append(reachable, network.IP.String())
		}
	}
	return reachable
}

// slipwayError is the output of a failed command.
type slipwayError string

func (e slipwayError) Error() string { return string(e) }

// slipway runs the command line and returns its output as the error if it fails.
func slipway(e *harness.Engine, args ...string) error {
	if out, err := exec.Command(e.Binary("slipway"), args...).CombinedOutput(); err != nil {
		return slipwayError(out)
	}
	return nil
}
