package kube_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/kube"
)

// All clients of one process together must not exceed one client's rate limit.
func TestClientsOfAClusterShareItsRateLimit(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","items":[]}`))
	}))
	t.Cleanup(server.Close)
	config := kube.Configure(&rest.Config{Host: server.URL}, kube.Options{QPS: 0.001, Burst: 2})
	typed, untyped, err := kube.NewClients(config)
	require.NoError(t, err)
	for range 2 {
		_, err := typed.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = kube.NewCluster(typed, untyped, nil).List(soon,
		schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "shop", "")
	require.ErrorContains(t, err, "rate limiter")

	other, _, err := kube.NewClients(kube.Configure(&rest.Config{Host: server.URL}, kube.Options{QPS: 0.001, Burst: 2}))
	require.NoError(t, err)
	_, err = other.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err, "another cluster has its own limit")
}
