package e2e

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/test/harness"
)

// servingClient makes Kuscia's five serving calls over one of the two transports.
type servingClient interface {
	CreateServing(context.Context, *kusciapb.CreateServingRequest, ...grpc.CallOption) (*kusciapb.CreateServingResponse,
		error)
	QueryServing(context.Context, *kusciapb.QueryServingRequest, ...grpc.CallOption) (*kusciapb.QueryServingResponse,
		error)
	UpdateServing(context.Context, *kusciapb.UpdateServingRequest, ...grpc.CallOption) (*kusciapb.UpdateServingResponse,
		error)
	DeleteServing(context.Context, *kusciapb.DeleteServingRequest, ...grpc.CallOption) (*kusciapb.DeleteServingResponse,
		error)
	BatchQueryServingStatus(context.Context, *kusciapb.BatchQueryServingStatusRequest,
		...grpc.CallOption) (*kusciapb.BatchQueryServingStatusResponse, error)
}

// protobufOverHTTP is the transport that Kuscia's own clients use in addition to gRPC.
type protobufOverHTTP struct{ url string }

func post[A proto.Message](ctx context.Context, url string, request proto.Message, answer A) (A, error) {
	body, err := proto.Marshal(request)
	if err != nil {
		return answer, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer, err
	}
	return answer, proto.Unmarshal(text, answer)
}

func (c protobufOverHTTP) CreateServing(ctx context.Context, r *kusciapb.CreateServingRequest,
	_ ...grpc.CallOption) (*kusciapb.CreateServingResponse, error) {
	return post(ctx, c.url+"/api/v1/serving/create", r, &kusciapb.CreateServingResponse{})
}

func (c protobufOverHTTP) QueryServing(ctx context.Context, r *kusciapb.QueryServingRequest,
	_ ...grpc.CallOption) (*kusciapb.QueryServingResponse, error) {
	return post(ctx, c.url+"/api/v1/serving/query", r, &kusciapb.QueryServingResponse{})
}

func (c protobufOverHTTP) UpdateServing(ctx context.Context, r *kusciapb.UpdateServingRequest,
	_ ...grpc.CallOption) (*kusciapb.UpdateServingResponse, error) {
	return post(ctx, c.url+"/api/v1/serving/update", r, &kusciapb.UpdateServingResponse{})
}

func (c protobufOverHTTP) DeleteServing(ctx context.Context, r *kusciapb.DeleteServingRequest,
	_ ...grpc.CallOption) (*kusciapb.DeleteServingResponse, error) {
	return post(ctx, c.url+"/api/v1/serving/delete", r, &kusciapb.DeleteServingResponse{})
}

func (c protobufOverHTTP) BatchQueryServingStatus(ctx context.Context, r *kusciapb.BatchQueryServingStatusRequest,
	_ ...grpc.CallOption) (*kusciapb.BatchQueryServingStatusResponse, error) {
	return post(ctx, c.url+"/api/v1/serving/status/batchQuery", r, &kusciapb.BatchQueryServingStatusResponse{})
}

// The five calls work the same as protobuf over HTTP and over gRPC.
func TestServingCalls_WorkOverHTTPAndGRPC(t *testing.T) {
	t.Parallel()
	u := newTwoParties(t, harness.Shared(t))
	connection, err := grpc.NewClient(u.KusciaGRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	for id, client := range map[string]servingClient{"by-http": protobufOverHTTP{u.KusciaURL},
		"by-grpc": kusciapb.NewServingServiceClient(connection)} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			testAllCalls(t, u, id, client)
		})
	}
}

func testAllCalls(t *testing.T, u *twoParties, id string, client servingClient) {
	t.Helper()
	ctx, one := t.Context(), int32(1)
	created, err := client.CreateServing(ctx, &kusciapb.CreateServingRequest{ServingId: id, Initiator: u.alice,
		Parties: []*kusciapb.ServingParty{
			{DomainId: u.alice, AppImage: u.good, Replicas: &one},
			{DomainId: u.bob, AppImage: u.good, Replicas: &one}}})
	require.NoError(t, err)
	require.Zero(t, created.GetStatus().GetCode(), created.GetStatus().GetMessage())
	require.Eventually(t, func() bool {
		q, err := client.QueryServing(ctx, &kusciapb.QueryServingRequest{ServingId: id})
		return err == nil && q.GetData().GetStatus().GetState() == "Available"
	}, harness.Patience, harness.Tick)
	updated, err := client.UpdateServing(ctx, &kusciapb.UpdateServingRequest{ServingId: id,
		Parties: []*kusciapb.ServingParty{{DomainId: u.bob, AppImage: u.better}}})
	require.NoError(t, err)
	require.Zero(t, updated.GetStatus().GetCode(), updated.GetStatus().GetMessage())
	require.Eventually(t, func() bool {
		b, err := client.BatchQueryServingStatus(ctx,
			&kusciapb.BatchQueryServingStatusRequest{ServingIds: []string{id}})
		return err == nil && len(b.GetData().GetServings()) == 1 &&
			b.GetData().GetServings()[0].GetStatus().GetState() == "Available" && u.tag(u.bob, id) == "v2"
	}, harness.Patience, harness.Tick)
	require.Equal(t, "v1", u.tag(u.alice, id), "the update does not name alice")
	deleted, err := client.DeleteServing(ctx, &kusciapb.DeleteServingRequest{ServingId: id})
	require.NoError(t, err)
	require.Zero(t, deleted.GetStatus().GetCode(), deleted.GetStatus().GetMessage())
	missing, err := client.QueryServing(ctx, &kusciapb.QueryServingRequest{ServingId: id})
	require.NoError(t, err)
	require.Equal(t, int32(11601), missing.GetStatus().GetCode())
}
