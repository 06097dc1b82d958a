package kuscia

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/kuscia/kusciapb"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// readCreate decodes a request as written by a client.
func readCreate(t *testing.T, text string) *kusciapb.CreateServingRequest {
	t.Helper()
	r := &kusciapb.CreateServingRequest{}
	require.NoError(t, protojson.Unmarshal([]byte(text), r))
	return r
}

func create(t *testing.T, m *memory, text string) *kusciapb.Status {
	t.Helper()
	answer, err := m.service().CreateServing(t.Context(), readCreate(t, text))
	require.NoError(t, err)
	return answer.GetStatus()
}

const (
	nameRule     = `"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$" `
	prefixRule   = `"^[a-z]([-a-z0-9]{0,46}[a-z0-9])?$" `
	quantityRule = `quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`
)

const subdomainRule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or " +
	"'.', and must start and end with an alphanumeric " +
	`character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`

func TestCreateRefusals(t *testing.T) {
	t.Parallel()
	alice := func(more string) string {
		return `{"serving_id":"s1","initiator":"alice","parties":[{"domain_id":"alice","app_image":"sf-serving-image"` +
			more + `}]}`
	}
	two := func(resources string) string {
		return `{"serving_id":"s1","initiator":"alice","parties":[{"domain_id":"alice","app_image":"two-ctr","role":"server","resources":[` + resources + `]}]}`
	}
	cases := map[string]struct {
		reason, request string
		code            int32
		message         string
	}{
		"NoID": {"Row 1: the ID is checked first.", `{}`, 11100, "serving id can not be empty"},
		"IllegalID": {"Row 2, with the trailing blank of Kuscia's message.", `{"serving_id":"A_b"}`, 11100,
			`Field "serving_id" is invalid, invalid value: "A_b": regex used for validation is ` + nameRule},
		"LongID": {"Row 2: at most 63 characters.", `{"serving_id":"` + strings.Repeat("a", 64) + `"}`, 11100,
			`Field "serving_id" is invalid, invalid value: "` + strings.Repeat("a", 64) +
				`": regex used for validation is ` + nameRule},
		"NoInitiator": {"Row 3.", `{"serving_id":"s1"}`, 11100, "initiator can not be empty"},
		"NoParties":   {"Row 4.", `{"serving_id":"s1","initiator":"alice"}`, 11100, "parties can not be empty"},
		"NoAppImage": {"Row 5: of a party's fields, the AppImage is checked first.",
			`{"serving_id":"s1","initiator":"alice","parties":[{}]}`, 11100, "appimage can't be empty in parties[0]"},
		"NoDomain": {"Row 5: the domain is second, and the error contains the party's index.",
			`{"serving_id":"s1","initiator":"alice","parties":[{"domain_id":"alice","app_image":"x"},{"app_image":"x"}]}`,
			11100, "domain id can't be empty in parties[1]"},
		"IllegalPrefix": {"Row 5: the prefix is third.", alice(`,"service_name_prefix":"9ab"`), 11100,
			`service name prefix is invalid in parties[0], field "service_name_prefix" is invalid, invalid value: "9ab": regex used for validation is ` + prefixRule},
		"ForeignInitiator": {"Row 6.",
			`{"serving_id":"s1","initiator":"carol","parties":[{"domain_id":"alice","app_image":"x"}]}`, 11100,
			"initiator carol should be one of the parties"},
		"Twice": {"Kuscia accepts a duplicate party, and the serving never becomes available.",
			`{"serving_id":"s1","initiator":"alice","parties":[{"domain_id":"alice","role":"a","app_image":"x"},{"domain_id":"bob","app_image":"x"},{"domain_id":"alice","role":"a","app_image":"y"}]}`,
			11100, "parties[2] has domain_id/role alice/a, which parties[0] has already: give one of them another role"},
		"LargeConfig": {"A pod could not start with a configuration that exceeds an environment variable.",
			`{"serving_id":"s1","initiator":"alice","serving_input_config":"` +
				strings.Repeat("x", serving.MaxInputConfig+1) + `","parties":[{"domain_id":"alice","app_image":"x"}]}`,
			11100, "serving input config has 122881 bytes, which is more than the 122880 that fit an environment " +
				"variable: let the application fetch what is large"},
		"Exists": {"Row 8: the ID is checked before the parties.",
			`{"serving_id":"taken","initiator":"alice","parties":[{"domain_id":"alice","app_image":"nope"}]}`, 11600,
			`serving "cross-domain/taken" already exists, please ensure that the name is not duplicated`},
		"Leaving": {"Row 9: a serving that its parties still run blocks a new one with its ID.",
			`{"serving_id":"leaving","initiator":"alice","parties":[{"domain_id":"alice","app_image":"sf-serving-image"}]}`, 11600, `serving "cross-domain/leaving" already exists, please ensure that the name is not duplicated`},
		"NoType": {"Row 10: a strategy without a type is an error, although the field has a default.",
			alice(`,"update_strategy":{}`), 11600,
			"update strategy type should be Recreate or RollingUpdate for party/role alice/"},
		"BadType": {"Row 10: the type is case-sensitive.", alice(`,"update_strategy":{"type":"recreate"}`), 11600,
			"update strategy type should be Recreate or RollingUpdate for party/role alice/"},
		"NoImage": {"Row 11, also without resources: such a serving could not even be queried.",
			`{"serving_id":"s1","initiator":"alice","parties":[{"domain_id":"alice","app_image":"x"}]}`, 11600,
			`can not get appimage x from cluster, appimages.kuscia.secretflow "x" not found`},
		"OddImage": {"Row 11: an illegal name is reported as not found.",
			`{"serving_id":"s1","initiator":"alice","parties":[{"domain_id":"alice","app_image":"X/y"}]}`, 11600,
			`can not get appimage X/y from cluster, appimages.kuscia.secretflow "X/y" not found`},
		"NoTemplate": {"Row 12.",
			`{"serving_id":"s1","initiator":"alice","parties":[{"domain_id":"alice","app_image":"two-ctr","role":"client"}]}`, 11600,
			`can not get deploy template from appimage two-ctr: it has none for role "client" of party alice`},
		"NoContainer": {"Row 13.", two(`{"container_name":"zz","min_cpu":"1"}`), 11600,
			"container_name zz of party domainID/role alice/server resources doesn't exist in app image two-ctr"},
		"BadMinCPU": {"Row 14.", two(`{"min_cpu":"1x"}`), 11600,
			"resource min_cpu 1x format is invalid for party domain_id/role alice/server, " + quantityRule},
		"BadMaxCPU": {"Row 14.", two(`{"max_cpu":"x"}`), 11600,
			"resource max_cpu x format is invalid for party domain_id/role alice/server, " + quantityRule},
		"BadMinMemory": {"Row 14.", two(`{"min_memory":"x"}`), 11600,
			"resource min_memory x format is invalid for party domain_id/role alice/server, " + quantityRule},
		"BadMaxMemory": {"Row 14.", two(`{"container_name":"side","max_memory":"x"}`), 11600,
			"resource max_memory x format is invalid for party domain_id/role alice/server, " + quantityRule},
		"UnknownDomain": {"No worker would ever deploy its part.",
			`{"serving_id":"s1","initiator":"alice","parties":[{"domain_id":"alice","app_image":"sf-serving-image"},{"domain_id":"carol","app_image":"sf-serving-image"}]}`, 11600,
			"domain carol is not known: create a Party object or a namespace of that name in the home cluster"},
		"IllegalDomain": {"An illegal name is reported as unknown.",
			`{"serving_id":"s1","initiator":"A b","parties":[{"domain_id":"A b","app_image":"sf-serving-image"}]}`,
			11600,
			"domain A b is not known: create a Party object or a namespace of that name in the home cluster"},
		"MinAboveMax": {"Kubernetes refuses such a pod in every party.",
			alice(`,"resources":[{"min_cpu":"2","max_cpu":"1"}]`), 11600,
			"party alice: container secretflow asks for 2 of cpu and may use only 1: the minimum must not be above " +
				"the maximum"},
		"BothZero": {"No pod could ever be replaced.",
			alice(`,"update_strategy":{"type":"RollingUpdate","max_surge":"0","max_unavailable":"0%"}`), 11600,
			"party alice: maxSurge and maxUnavailable are both 0, so that no pod could ever be replaced: raise one " +
				"of them"},
		"BadSurge": {"A value that is neither a number nor a percentage is refused here, not by each party's API " +
			"server.", alice(`,"update_strategy":{"type":"RollingUpdate","max_surge":"many"}`), 11600,
			`party alice: maxSurge must be a number like 1 or a percentage like 25%, not "many"`},
		"NegativeReplicas": {"A negative number is illegal.", alice(`,"replicas":-1`), 11600,
			"party alice: replicas must not be negative, but -1 are requested"},
		"AffinityMode": {"Kuscia treats any unknown value as the default.",
			`{"serving_id":"s1","affinity_mode":"odd","initiator":"alice","parties":[{"domain_id":"alice","app_image":"sf-serving-image"}]}`, 11600,
			"affinity mode \"odd\" is not known: use none, affinity or anti-affinity, or leave it out"},
		"IllegalRole": {"The role is a part of the Deployment's name.", alice(`,"role":"Server"`), 11600,
			`party alice/Server: its Deployment would be called "s1-Server", which is not a legal name: ` +
				subdomainRule},
		"DotsInARow": {"Kuscia's pattern accepts it, Kubernetes does not.",
			`{"serving_id":"a..b","initiator":"alice","parties":[{"domain_id":"alice","app_image":"sf-serving-image"}]}`, 11600, `serving ID "a..b" is not a legal name: ` + subdomainRule},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := sample(t)
			m.servings["taken"] = &kuscia.KusciaDeployment{ObjectMeta: metav1.ObjectMeta{Name: "taken"}}
			now := metav1.Now()
			m.servings["leaving"] = &kuscia.KusciaDeployment{ObjectMeta: metav1.ObjectMeta{Name: "leaving",
				DeletionTimestamp: &now}}
			m.writes = 0
			status := create(t, m, c.request)
			require.Equal(t, c.code, status.GetCode(), "%s %s", c.reason, status.GetMessage())
			require.Equal(t, c.message, status.GetMessage(), c.reason)
			require.Zero(t, m.writes, "a refusal writes nothing")
		})
	}
}

func TestCreateServing_StoresSameObjectAsKuscia(t *testing.T) {
	t.Parallel()
	m := sample(t)
	status := create(t, m,
		`{"serving_id":"s1","serving_input_config":"{}","initiator":"alice","affinity_mode":"none","parties":[
		{"domain_id":"bob","app_image":"two-ctr","role":"server","service_name_prefix":"svc","replicas":0,"update_strategy":{"type":"Recreate","max_surge":"1"},
		 "resources":[{"min_cpu":"0.1","max_memory":"1Gi"},{"container_name":"side","min_cpu":"200m","max_cpu":"0.5"}]},
		{"domain_id":"alice","app_image":"sf-serving-image","update_strategy":{"type":"RollingUpdate","max_surge":"1"}}]}`)
	require.Equal(t, "success", status.GetMessage())
	kd := m.servings["s1"]
	require.Equal(t, "cross-domain", kd.Namespace)
	require.Equal(t, map[string]string{"kuscia.secretflow/app-type": "serving"}, kd.Labels)
	require.Equal(t, map[string]string{"kuscia.secretflow/affinity-mode": "none"}, kd.Annotations)
	require.Equal(t, []string{kuscia.Finalizer}, kd.Finalizers,
		"from the beginning, it must not be deleted before its parties' workloads")
	require.Equal(t, "alice", kd.Spec.Initiator)
	require.Equal(t, "{}", kd.Spec.InputConfig)

	bob := kd.Spec.Parties[0]
	require.Equal(t, []string{"bob", "two-ctr", "server", "svc"},
		[]string{bob.DomainID, bob.AppImageRef, bob.Role, bob.ServiceNamePrefix}, "the order is that of the request")
	require.EqualValues(t, 0, *bob.Template.Replicas, "an explicit 0 is stored")
	require.EqualValues(t, "Recreate", bob.Template.Strategy.Type)
	require.Nil(t, bob.Template.Strategy.RollingUpdate, "Recreate has no numbers")
	require.Len(t, bob.Template.Spec.Containers, 2)
	version := serving.Snapshot(kd, map[string]kuscia.AppImageSpec{"two-ctr": m.images["two-ctr"].Spec})
	require.Equal(t, []serving.ResourceRow{{Container: "main", MinCPU: "100m", MaxMemory: "1Gi"},
		{Container: "side", MinCPU: "200m", MaxCPU: "500m", MaxMemory: "1Gi"}}, version.Resources(0),
		"the entry without a name fills in values missing in the named one")

	alice := kd.Spec.Parties[1]
	require.Nil(t, alice.Template.Replicas, "missing replicas stay unset")
	require.Nil(t, alice.Template.Spec)
	require.Equal(t, "1", alice.Template.Strategy.RollingUpdate.MaxSurge.String())
	require.Equal(t, "25%", alice.Template.Strategy.RollingUpdate.MaxUnavailable.String())
}

func TestCreateServing_KeepsResourcesOfSomeContainers(t *testing.T) {
	t.Parallel()
	m := sample(t)
	require.Zero(t,
		create(t, m,
			`{"serving_id":"s1","initiator":"alice","parties":[{"domain_id":"alice","app_image":"two-ctr","role":"server",
		"resources":[{"container_name":"main","max_cpu":"1"}]}]}`).GetCode())
	containers := m.servings["s1"].Spec.Parties[0].Template.Spec.Containers
	require.Len(t, containers, 1, "a container without resources does not affect the other one")
	require.Equal(t, "main", containers[0].Name)
}

func TestCreateWithoutInputConfig(t *testing.T) {
	t.Parallel()
	require.Zero(t,
		create(t, sample(t),
			`{"serving_id":"a.b","initiator":"alice","parties":[{"domain_id":"alice","app_image":"sf-serving-image"}]}`).GetCode(),
		"some servings need none, and an ID may have dots")
}

func TestTwoHundredParties(t *testing.T) {
	t.Parallel()
	m := newMemory(manyDomains(200)...)
	m.image(t, "two-ctr", twoContainers)
	r := &kusciapb.CreateServingRequest{ServingId: "s1", Initiator: "party-007"}
	for _, domain := range m.domains {
		r.Parties = append(r.Parties, &kusciapb.ServingParty{DomainId: domain, AppImage: "two-ctr", Role: "server",
			Resources: []*kusciapb.Resource{{MinCpu: "1"}}})
	}
	answer, err := m.service().CreateServing(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "success", answer.GetStatus().GetMessage())
	shown, err := m.service().QueryServing(t.Context(), &kusciapb.QueryServingRequest{ServingId: "s1"})
	require.NoError(t, err)
	require.EqualValues(t, 200, shown.GetData().GetStatus().GetTotalParties())
	for i, domain := range m.domains {
		require.Equal(t, domain, shown.GetData().GetParties()[i].GetDomainId())
		require.Equal(t, domain, shown.GetData().GetStatus().GetPartyStatuses()[i].GetDomainId())
	}
}
