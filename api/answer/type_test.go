package answer

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
)

func TestType_FollowsAcceptHeader(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ reason, accept, want string }{
		{"no header", "", "application/json"},
		{"anything", "*/*", "application/json"},
		{"the second offer", "application/yaml", "application/yaml"},
		{"an older name of it", "text/x-yaml", "application/yaml"},
		{"the preferred one", "application/json;q=0.5, application/yaml", "application/yaml"},
		{"a browser's list", "text/html,application/xhtml+xml,*/*;q=0.8", "application/json"},
		{"a group", "application/*", "application/json"},
		{"one type of a group excluded", "application/json;q=0, application/*", "application/yaml"},
		{"an unsupported type", "text/csv", ""},
		{"excluded outright", "application/json;q=0", ""},
	} {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		if c.accept != "" {
			request.Header.Set("Accept", c.accept)
		}
		got, err := Type(echo.New().NewContext(request, nil), TypeJSON, TypeYAML)
		require.Equal(t, c.want, got, c.reason)
		require.Equal(t, c.want == "", err != nil, c.reason)
	}
}
