package chart

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise/definition"
)

// sets are the values that the tests render with: the defaults, every option of an engine, and a party.
var sets = map[string][]string{"Defaults": nil, "Everything": {"--values", "testdata/everything.yaml"},
	"Party": {"--values", "testdata/party.yaml"}}

func TestHelmLint_Passes(t *testing.T) {
	t.Parallel()
	for name, args := range sets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mustHelm(t, append([]string{"lint", "--strict", chartDir()}, args...)...)
		})
	}
}

// TestPackagedChart_RendersLikeRepository checks that the packaged chart renders the same without the repository.
func TestPackagedChart_RendersLikeRepository(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	mustHelm(t, "package", chartDir(), "--destination", folder, "--version", "9.8.7", "--app-version", "v9")
	packaged := filepath.Join(folder, "slipway-9.8.7.tgz")
	out := mustHelm(t, "template", "slipway", packaged, "--namespace", "slipway", "--values",
		"testdata/everything.yaml", "--set", "image.digest=,image.tag=")
	objects := objectsOf(t, out)
	assert.Len(t, objects, len(render(t, sets["Everything"]...)))
	worker := find(t, objects, "Deployment", "engine-worker")
	assert.Contains(t, containerOf(t, worker)["args"], "--image=registry.example/slipway:v9",
		"the application version must be the default tag")
}

// TestInvalidValues_AreReported checks that invalid values are refused before anything is rendered, with messages that
// name them.
func TestInvalidValues_AreReported(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, set, want string }{
		{"UnknownValue", "replicas=3", "additional properties 'replicas' not allowed"},
		{"UnknownValueWithin", "temporal.adress=temporal:7233", "additional properties 'adress' not allowed"},
		{"NoNumber", "server.replicas=two", "at '/server/replicas': got string, want integer"},
		{"NoServer", "server.replicas=0", "at '/server/replicas': minimum: got 0, want 1"},
		{"UnknownMode", "mode=both", "at '/mode': value must be one of 'engine', 'party'"},
		{"AddressWithoutPort", "temporal.address=temporal",
			"at '/temporal/address': 'temporal' does not match pattern"},
		{"Digest", "image.digest=sha256:12", "at '/image/digest'"},
		{"NamespaceInCapitals", "watchNamespaces={Shop}", "at '/watchNamespaces/0': 'Shop' does not match pattern"},
		{"NamespaceTwice", "watchNamespaces={shop,shop}", "at '/watchNamespaces': items at 0 and 1 are equal"},
		{"NoFlag", "worker.extraArgs={record-limit}", "at '/worker/extraArgs/0'"},
		{"Interval", "monitoring.interval=often", "at '/monitoring/interval'"},
		{"ServiceType", "api.service.type=Headless", "at '/api/service/type'"},
		{"Gate", "rollouts.gate=shut", "at '/rollouts/gate'"},
		{"NoSources", "packages.sourceAllow=null", "at '/packages': missing property 'sourceAllow'"},
		{"OpenAPI", "api.tokenSecret.name=", "the API would be open to every client: name a Secret with its token " +
			"(api.tokenSecret)"},
		{"ClientsWithoutTLS", "api.clientCASecret.name=ca",
			"api.clientCASecret requires client certificates, which need TLS: set api.tlsSecret too"},
		{"RequiredWithoutKeys", "temporal.codecRequire=true",
			"temporal.codecRequire needs the keys: set temporal.codecKeysSecret"},
		{"PartyWithoutName", "mode=party", "mode party runs the workers of one party: set party.name"},
		{"EngineWithParty", "party.name=alice", "set mode to party, or leave party.name out"},
		{"PartyInReleasedNamespace", "mode=party,party.name=alice",
			"Install the chart in another namespace (--namespace slipway-party --create-namespace)"},
		{"PartyInOneOfItsNamespaces", "mode=party,party.name=alice,watchNamespaces={shop,default}",
			"those who administer default could act as their account"},
		{"PartyWithKuscia", "mode=party,party.name=alice,watchNamespaces={shop},kuscia.enabled=true",
			"kuscia.enabled belongs to the engine"},
		{"PartyWithRollouts", "mode=party,party.name=alice,watchNamespaces={shop},rollouts.enabled=true",
			"rollouts.enabled belongs to the engine"},
		{"KusciaWithoutCertificate", "kuscia.enabled=true", "kuscia.enabled needs kuscia.tlsSecret"},
		{"KusciaWithoutCA", "kuscia.enabled=true,kuscia.tlsSecret.name=a,kuscia.tokenSecret.name=b",
			"kuscia.protocol MTLS needs kuscia.caSecret"},
		{"SchemaOfNoDatabase", "temporalSchema.enabled=true,temporalSchema.host=db",
			"temporalSchema.enabled needs temporalSchema.image"},
		{"SchemaWithoutTLS", "temporalSchema.tls.caSecret.name=ca", "has no effect without temporalSchema.tls.enabled"},
		{"SchemaOfAParty", "mode=party,party.name=alice,watchNamespaces={shop},temporalSchema.enabled=true",
			"temporalSchema.enabled belongs to the engine"},
		{"SchemaHostWithPort", "temporalSchema.host=db:5432", "at '/temporalSchema/host'"},
		{"TLSOff", "temporal.tls=off,temporal.caSecret.name=ca", "temporal.tls is off, but temporal.caSecret"},
		{"TokenWithoutStore", "packages.storeTokenSecret.name=t", "packages.store is empty"},
		{"TwoInstallers", "crds.byServer=true", "crds.install and crds.byServer both install the definitions"},
		{"GateWithoutWebhook", "rollouts.enabled=true,rollouts.gate=webhook,rollouts.webhook.enabled=false",
			"rollouts.gate webhook holds nothing"},
		{"IdentitiesWithoutGuard", "guard.identities={me}", "guard.identities has no effect without guard.install"},
		{"IdentityOfEveryNamespace", "guard.install=true,guard.identities={system:serviceaccount:\\{namespace\\}:worker}",
			"at '/guard/identities/0'"},
		{"SelectorWithoutGuard", "guard.namespaceSelector.matchLabels.team=shop",
			"guard.namespaceSelector has no effect without guard.install"},
		{"LockWithoutGuard", "guard.lock=true", "guard.lock has no effect without guard.install"},
		{"GateWithoutRollouts", "guard.install=true,crds.kruise=false",
			"guard.gate needs the definition of Rollouts, which crds.kruise: false leaves out"},
		{"ServersWithoutAccount", "serviceAccount.create=false,serviceAccount.name=a",
			"set serviceAccount.server.name to an existing account of its own for servers"},
		{"OneAccount", "serviceAccount.server.name=a,serviceAccount.name=a",
			"servers must not have the rights of workers on workloads"},
		{"AdministratorsPods", "watchNamespaces={shop,kube-system}", "becomes an administrator of the cluster"},
		{"DefinitionsByServer", "rollouts.enabled=true,crds.install=false,crds.byServer=true",
			"let servers register it too (rbac.byServer: true)"},
		{"UnknownCA", "rollouts.enabled=true,rollouts.webhook.tlsSecret.name=tls", "Set rollouts.webhook.caBundle"},
		{"CAWithoutSecret", "rollouts.enabled=true,rollouts.webhook.caBundle=x", "set tlsSecret too"},
		{"TwoCAs", "rollouts.webhook.certManager.issuerRef.name=a,rollouts.webhook.tlsSecret.name=tls",
			"leave out tlsSecret and caBundle"},
		{"IssuerByServer", "rbac.byServer=true,rollouts.webhook.certManager.issuerRef.name=a",
			"have no effect with rbac.byServer"},
		{"PartyByServer", "mode=party,party.name=alice,watchNamespaces={shop},rbac.byServer=true",
			"rbac.byServer belongs to the engine"},
		{"AccountWithoutName", "serviceAccount.create=false", "set serviceAccount.name to an existing account"},
		{"OwnFlag", "server.extraArgs={--listen=:9999}",
			"server.extraArgs has --listen, which the chart sets by itself"},
		{"OwnFlagOfWorkers", "worker.extraArgs={--log-level=debug}",
			"worker.extraArgs has --log-level, which the chart sets by itself"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, errors, err := tryHelm(t, "template", "slipway", chartDir(), "--set", c.set)
			require.Error(t, err)
			assert.Contains(t, errors, c.want)
			assert.Empty(t, out)
		})
	}
}

// TestValuesSchema_DescribesEveryValue checks that the schema describes every value of the chart, and no other.
func TestValuesSchema_DescribesEveryValue(t *testing.T) {
	t.Parallel()
	var schema, defaults map[string]any
	text, err := os.ReadFile(filepath.Join(chartDir(), "values.schema.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &schema))
	text, err = os.ReadFile(filepath.Join(chartDir(), "values.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &defaults))
	definitions := schema["definitions"].(map[string]any)
	resolve := func(s map[string]any) map[string]any {
		if ref, is := s["$ref"].(string); is {
			return definitions[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
		}
		return s
	}
	var compare func(path string, schema, have map[string]any)
	compare = func(path string, schema, have map[string]any) {
		for name, s := range schema["properties"].(map[string]any) {
			at := path + "." + name
			property := resolve(s.(map[string]any))
			assert.NotEmpty(t, property["description"], at)
			within, is := property["properties"].(map[string]any)
			if !is || len(within) == 0 {
				continue
			}
			assert.Equal(t, false, property["additionalProperties"], at)
			if value, is := have[name].(map[string]any); is && !strings.Contains(at, ".resources") &&
				!strings.HasSuffix(at, "namespaceSelector") && !strings.HasSuffix(at, "issuerRef") {
				compare(at, property, value)
			}
		}
		for name := range have {
			assert.Contains(t, schema["properties"], name, "the schema has no %s.%s", path, name)
		}
	}
	compare("", schema, defaults)
}

// TestPodsHaveNoPrivileges checks that pods run without privileges and with a read-only file system.
func TestPodsHaveNoPrivileges(t *testing.T) {
	t.Parallel()
	for set, args := range sets {
		kinds := map[string]int{}
		for _, object := range render(t, args...) {
			if object.GetKind() == "ServiceAccount" {
				assert.Equal(t, false, object.Object["automountServiceAccountToken"], set)
			}
			if object.GetKind() != "Deployment" && object.GetKind() != "Job" {
				continue
			}
			kinds[object.GetKind()]++
			pod, _, _ := unstructured.NestedMap(object.Object, "spec", "template", "spec")
			security, _, _ := unstructured.NestedMap(pod, "securityContext")
			assert.Equal(t, map[string]any{"runAsNonRoot": true, "runAsUser": int64(65532), "runAsGroup": int64(65532),
				"fsGroup":        int64(65532),
				"seccompProfile": map[string]any{"type": "RuntimeDefault"}}, security, set)
			container := containerOf(t, object)
			assert.Equal(t, map[string]any{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
				"capabilities": map[string]any{"drop": []any{"ALL"}}}, container["securityContext"], set)
			if object.GetKind() == "Job" {
				continue
			}
			for _, probe := range []string{"startupProbe", "readinessProbe", "livenessProbe"} {
				assert.Contains(t, container, probe, set)
			}
		}
		assert.Equal(t, map[string]map[string]int{"Defaults": {"Deployment": 2},
			"Everything": {"Deployment": 2, "Job": 1}, "Party": {"Deployment": 1}}[set], kinds)
	}
}

// TestPartyChart_HasNoCentrePermissions checks that a party's workers have no permission in the centre, and that
// nothing of the centre is installed with them.
func TestPartyChart_HasNoCentrePermissions(t *testing.T) {
	t.Parallel()
	for _, object := range render(t, sets["Party"]...) {
		assert.NotContains(t, []string{"Service", "CustomResourceDefinition", "Namespace"}, object.GetKind(),
			object.GetName())
		if strings.HasSuffix(object.GetKind(), "Role") {
			assert.NotContains(t, object.GetName(), "centre")
			rules, err := json.Marshal(object.Object["rules"])
			require.NoError(t, err)
			assert.NotContains(t, string(rules), "slipway.io")
			assert.NotContains(t, string(rules), "rollouts.kruise.io")
		}
	}
}

// TestChartGuard_EqualsGuardOfCommand checks that the chart's guard equals that of `slipway guard install` for the
// accounts of the release.
func TestChartGuard_EqualsGuardOfCommand(t *testing.T) {
	t.Parallel()
	identities := []string{"system:serviceaccount:slipway-party:slipway-party",
		"system:serviceaccount:team-a:blue-slipway"}
	team := map[string]any{"matchLabels": map[string]any{"team": "shop"}}
	teamSelector, err := metav1.ParseToLabelSelector("team=shop")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		values  map[string]any
		options guard.Options
	}{
		"Complete":    {nil, guard.Options{}},
		"WithoutGate": {map[string]any{"gate": false}, guard.Options{NoGate: true}},
		"Locked":      {map[string]any{"lock": true}, guard.Options{Lock: true}},
		"LockedTeam": {map[string]any{"lock": true, "namespaceSelector": team},
			guard.Options{Lock: true, Namespaces: teamSelector}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.options.Name, c.options.Identities = "blue-slipway-team-a-guard", identities
			chosen := map[string]any{"install": true, "identities": identities[:1]}
			maps.Copy(chosen, c.values)
			file := values(t, map[string]any{"guard": chosen})
			rendered := objectsOf(t, mustHelm(t, "template", "blue", chartDir(), "--namespace", "team-a", "--values",
				file))
			wanted := guard.Policies(c.options, "v1", "v1")
			for _, want := range wanted {
				have := find(t, rendered, want.GetKind(), want.GetName())
				for label, value := range want.GetLabels() {
					assert.Equal(t, value, have.GetLabels()[label])
				}
				assert.Equal(t, want.GetAnnotations(), have.GetAnnotations())
				assert.Equal(t, asJSON(t, want.Object["spec"]), asJSON(t, have.Object["spec"]), want.GetName())
			}
			policies := 0
			for _, object := range rendered {
				if strings.Contains(object.GetKind(), "AdmissionPolicy") && object.GetLabels()[guard.LabelGuard] != "" {
					policies++
				}
			}
			assert.Equal(t, len(wanted), policies)
		})
	}
}

// TestServersThatWriteTheGate_KnowTheWorkers: the account of workers is another than that of the servers which write
// whose edits the gate lets pass. Servers that write no gate refuse the flag.
func TestServersThatWriteTheGate_KnowTheWorkers(t *testing.T) {
	t.Parallel()
	const flag = "--engine-identity"
	argsOf := func(set string) string {
		pod, err := json.Marshal(find(t, render(t, "--set", "rollouts.enabled=true,"+set), "Deployment",
			"slipway-server").Object["spec"])
		require.NoError(t, err)
		return string(pod)
	}
	require.Contains(t, argsOf("rbac.byServer=true,guard.identities={anna}"),
		`"`+flag+`=system:serviceaccount:slipway:slipway,anna"`)
	require.NotContains(t, argsOf("rbac.byServer=false"), flag)
}

// TestDefinitions_AreKept_OnUninstall checks that definitions equal the repository's, are kept on uninstall, and are
// recognised as Slipway's despite Helm's labels.
func TestDefinitions_AreKept_OnUninstall(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, object := range render(t) {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		names[object.GetName()] = true
		assert.Equal(t, "keep", object.GetAnnotations()["helm.sh/resource-policy"])
		assert.True(t, definition.IsOurs(object.GetLabels()), object.GetName())
		files, err := filepath.Glob(filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "deploy/crds/*.yaml"))
		require.NoError(t, err)
		var specs []string
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			if source := objectsOf(t, string(text))[0]; source.GetName() == object.GetName() {
				specs = append(specs, asJSON(t, source.Object["spec"]))
			}
		}
		assert.Equal(t, []string{asJSON(t, object.Object["spec"])}, specs, object.GetName())
	}
	assert.Len(t, names, 8)
	converted := find(t, render(t, "--set", "rollouts.enabled=true,rbac.byServer=true"), "CustomResourceDefinition",
		definition.Name)
	assert.JSONEq(t,
		`{"strategy":"Webhook","webhook":{"clientConfig":{"service":{"name":"slipway-webhook","namespace":"slipway","path":"/convert","port":443}},`+
			`"conversionReviewVersions":["v1"]}}`, asJSON(t, converted.Object["spec"].(map[string]any)["conversion"]))
	for _, object := range render(t, "--set", "crds.kruise=false,crds.kuscia=false") {
		if object.GetKind() == "CustomResourceDefinition" {
			assert.Contains(t, object.GetName(), ".slipway.io")
		}
	}
}

func containerOf(t testing.TB, deployment *unstructured.Unstructured) map[string]any {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	require.Len(t, containers, 1)
	return containers[0].(map[string]any)
}

func asJSON(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}
