package kuscia

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/kuscia/kusciapb"
)

// numbered returns n IDs.
func numbered(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("s%d", i))
	}
	return ids
}

func batchBody(t *testing.T, key string, ids []string) string {
	t.Helper()
	text, err := json.Marshal(map[string][]string{key: ids})
	require.NoError(t, err)
	return string(text)
}

func TestBatchQuery_RefusesMoreThan500_AndReadsNothing(t *testing.T) {
	t.Parallel()
	m := running(t)
	clear(m.reads)
	const refused = `{"status":{"code":11100,"message":"serving ids can not be more than 500, but there are 3000: ` +
		`split the request","details":[]},"data":null}`
	requireBody(t, refused, post(handler(m), batchPath, batchBody(t, "serving_ids", numbered(3000))))
	conn := serve(t, m, Security{}).dial(t, nil)
	answer, err := kusciapb.NewServingServiceClient(conn).BatchQueryServingStatus(t.Context(),
		&kusciapb.BatchQueryServingStatusRequest{ServingIds: numbered(501)})
	require.NoError(t, err)
	require.EqualValues(t, 11100, answer.GetStatus().GetCode())
	require.Nil(t, answer.GetData())
	images := post(handler(m), "/api/v1/appimage/batchQuery", batchBody(t, "names", numbered(3000))).Body.String()
	require.Contains(t, images, `"code":11100,"message":"names can not be more than 500, but there are 3000`)
	require.Empty(t, m.reads)
}

func TestBatchQuery_ReadsEachServingAndAppImageOnce(t *testing.T) {
	t.Parallel()
	m := sample(t)
	for _, id := range numbered(100) {
		require.Zero(t, create(t, m, `{"serving_id":"`+id+`","initiator":"alice","parties":[{"domain_id":"alice",`+
			`"app_image":"sf-serving-image"},{"domain_id":"bob","role":"server","app_image":"two-ctr"}]}`).GetCode())
	}
	delete(m.images, "two-ctr") // one that does not exist is read once, too
	clear(m.reads)
	var ids, want []string
	for i := range 500 {
		id := fmt.Sprintf("s%d", (i*7)%125) // s100 to s124 do not exist
		if ids = append(ids, id); (i*7)%125 < 100 {
			want = append(want, id)
		}
	}
	answer, err := m.service().BatchQueryServingStatus(t.Context(),
		&kusciapb.BatchQueryServingStatusRequest{ServingIds: ids})
	require.NoError(t, err)
	require.Zero(t, answer.GetStatus().GetCode(), answer.GetStatus().GetMessage())
	var got []string
	for _, one := range answer.GetData().GetServings() {
		got = append(got, one.GetServingId())
		require.Equal(t, "Pending", one.GetStatus().GetState())
		require.EqualValues(t, 2, one.GetStatus().GetTotalParties())
	}
	require.Equal(t, want, got, "the order and number of the request")
	require.Len(t, m.reads, 125+2)
	for name, reads := range m.reads {
		require.Equal(t, 1, reads, name)
	}

	require.Zero(t, create(t, m, `{"serving_id":"new","initiator":"alice","parties":[{"domain_id":"alice",`+
		`"app_image":"sf-serving-image"}]}`).GetCode())
	again, err := m.service().BatchQueryServingStatus(t.Context(),
		&kusciapb.BatchQueryServingStatusRequest{ServingIds: []string{"nope", "new"}})
	require.NoError(t, err)
	require.Len(t, again.GetData().GetServings(), 1, "one that was created a moment ago is found")
}

func TestBatchQueryAppImage_ReadsEachOnce(t *testing.T) {
	t.Parallel()
	m := sample(t)
	clear(m.reads)
	names := strings.Split(strings.Repeat("two-ctr,sf-serving-image,", 250), ",")[:500]
	answer, err := m.service().BatchQueryAppImage(t.Context(), &kusciapb.BatchQueryAppImageRequest{Names: names})
	require.NoError(t, err)
	require.Len(t, answer.GetData(), 500)
	for i, data := range answer.GetData() {
		require.Equal(t, names[i], data.GetName())
	}
	require.Equal(t, map[string]int{"two-ctr": 1, "sf-serving-image": 1}, m.reads)
}
