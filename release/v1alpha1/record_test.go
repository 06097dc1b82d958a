package v1alpha1_test

import (
	"bytes"
	"compress/gzip"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

func TestBodies(t *testing.T) {
	t.Parallel()
	want := plan.Snapshot{Task: "shop-1", Document: plan.Document{Items: make([]plan.Item, 1000)}}
	body, err := v1alpha1.EncodeBody(want)
	require.NoError(t, err)
	require.Less(t, len(body), 2000, "a body is compressed")
	var got plan.Snapshot
	require.NoError(t, v1alpha1.DecodeBody(body, &got))
	require.Equal(t, want, got)

	var bomb bytes.Buffer
	zipped := gzip.NewWriter(&bomb)
	for range 65 {
		_, err := zipped.Write(bytes.Repeat([]byte(" "), 1<<20))
		require.NoError(t, err)
	}
	require.NoError(t, zipped.Close())
	for reason, broken := range map[string][]byte{"nothing": nil, "not gzip": []byte("{}"),
		"truncated": body[:len(body)/2], "more than 64 MiB": bomb.Bytes()} {
		require.Error(t, v1alpha1.DecodeBody(broken, &got), reason)
	}
}

// Bodies are compared and addressed by their bytes, and compressors are reused.
func TestEncodeBody_ReturnsSameBytes_ForSameValue(t *testing.T) {
	t.Parallel()
	encode := func(n int) []byte {
		body, err := v1alpha1.EncodeBody(plan.Snapshot{Task: "shop-1",
			Document: plan.Document{Items: make([]plan.Item, n)}})
		if err != nil {
			t.Error(err)
		}
		return body
	}
	first := [][]byte{encode(0), encode(1), encode(2)}
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			if _, err := v1alpha1.EncodeBody(func() {}); err == nil {
				t.Error("a function must not be encoded")
			}
			assert.Equal(t, first[i%3], encode(i%3), "regardless of what was encoded before, or failed")
		})
	}
	all.Wait()
}

func BenchmarkEncodeBody(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_, _ = v1alpha1.EncodeBody(plan.Snapshot{Task: "shop-1"})
	}
}

func TestNamesOfObjects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ reason, id, want string }{
		{"a legal name is the ID itself", "0111", "^0111$"},
		{"dots are legal", "a.b", `^a\.b$`},
		{"capital letters are not", "Order", "^order-[0-9a-f]{10}$"},
	} {
		name := v1alpha1.ObjectName(c.id)
		require.Regexp(t, c.want, name, c.reason)
		object := &metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.AnnotationID: c.id}}
		require.Equal(t, c.id, v1alpha1.IDOf(object), c.reason)
	}
	require.NotEqual(t, v1alpha1.ObjectName("Order"), v1alpha1.ObjectName("ORDER"), "IDs are case-sensitive")
	forged := &metav1.ObjectMeta{Name: "cart", Annotations: map[string]string{v1alpha1.AnnotationID: "Order"}}
	require.Equal(t, "cart", v1alpha1.IDOf(forged), "an annotation that does not match the name is ignored")
}
