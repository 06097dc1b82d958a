package podpolicy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/podpolicy"
	"slipway.io/slipway/release/source"
)

const fetchImage = "slipway:local"

// parsed reads a pod template from JSON.
func parsed(t *testing.T, text string) *corev1.PodTemplateSpec {
	t.Helper()
	if text == "" {
		return nil
	}
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &object), text)
	template, err := podpolicy.Parse(object)
	require.NoError(t, err)
	return template
}

// pod is a template with one container, more fields of it, and more fields of the pod.
func pod(container, fields string) string {
	if container != "" {
		container = ", " + container
	}
	if fields != "" {
		fields = ", " + fields
	}
	return `{"spec": {"containers": [{"name": "app", "image": "registry.example/team/app:1"` + container + `}]` +
		fields + `}}`
}

func TestViolations(t *testing.T) {
	t.Parallel()
	const complies = `"securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true,
		"capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}`
	hostPath := func(path string) string { return `"volumes": [{"name": "v", "hostPath": {"path": "` + path + `"}}]` }
	probe := func(host, port string) string {
		return `"livenessProbe": {"httpGet": {"host": "` + host + `", "port": ` + port + `}}`
	}
	reads := func(secret string) string { return `"envFrom": [{"secretRef": {"name": "` + secret + `"}}]` }
	for name, tc := range map[string]struct {
		reason, policy, next, live string
		rules                      []string
	}{
		"open allows all": {"as without a policy", "preset: open", pod(`"securityContext": {"privileged": true}`,
			`"hostPID": true, `+hostPath("/")), "", nil},
		"plain": {"an ordinary pod", "preset: baseline", pod("", ""), "", nil},
		"the attack": {"all at once", "preset: baseline\nimages: {allowedPrefixes: [registry.example/team/]}\n" +
			"secrets: {allowed: []}\n", `{"spec": {"hostPID": true, "containers": [{"name": "app",
			"image": "evil.example/x",
			"securityContext": {"privileged": true}, ` + reads("all") + `}]}}`, pod("", ""),
			[]string{"baseline.hostNamespaces", "baseline.privileged", "images.allowedPrefixes", "secrets.allowed"}},
		"probe": {"the kubelet would ask any host", "preset: baseline", pod(probe("169.254.169.254", "80"), ""), "",
			[]string{"baseline.hostProbesAndHostLifecycle"}},
		"hook": {"so would a hook", "preset: baseline", pod(
			`"lifecycle": {"preStop": {"httpGet": {"host": "10.0.0.1", "port": 80}}}`, ""), "",
			[]string{"baseline.hostProbesAndHostLifecycle"}},
		"connection": {"to any port of a host", "preset: baseline", pod(
			`"startupProbe": {"tcpSocket": {"host": "10.0.0.1", "port": 22}}`, ""), "",
			[]string{"baseline.hostProbesAndHostLifecycle"}},
		"probe without a host": {"the pod itself", "preset: baseline", pod(probe("", "80"), ""), "", nil},
		"old probe": {"it was there before", "preset: baseline", pod(probe("a", "80"), ""),
			pod(probe("a", "80"), ""), nil},
		"other port": {"the same host by another port is new", "preset: baseline", pod(probe("a", "81"), ""),
			pod(probe("a", "80"), ""), []string{"baseline.hostProbesAndHostLifecycle"}},
		"old privilege": {"what the live template has stays", "preset: baseline",
			pod(`"securityContext": {"privileged": true}, "args": ["new"]`, hostPath("/var/log")),
			pod(`"securityContext": {"privileged": true}`, hostPath("/var/log")), nil},
		"other path": {"another path of the node is new", "preset: baseline", pod("", hostPath("/")),
			pod("", hostPath("/var/log")), []string{"baseline.hostPathVolumes"}},
		"other container": {"a privilege belongs to a container", "preset: baseline",
			`{"spec": {"containers": [{"name": "app", "image": "x", "securityContext": {"privileged": true}},
			{"name": "side", "image": "x", "securityContext": {"privileged": true}}]}}`,
			pod(`"securityContext": {"privileged": true}`, ""), []string{"baseline.privileged"}},
		"init container": {"is a container", "preset: baseline", pod("", `"initContainers": [{"name": "i", "image": "x",
			"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]`), "", []string{"baseline.capabilities_baseline"}},
		"sysctl value": {"another value is new", "preset: baseline",
			pod("", `"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "2"}]}`),
			pod("", `"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}`),
			[]string{"baseline.sysctls"}},
		"AppArmor annotation": {"the old form", "preset: baseline", `{"metadata": {"annotations":
			{"container.apparmor.security.beta.kubernetes.io/app": "unconfined"}}, "spec": {"containers": [{"name": "app"}]}}`,
			"", []string{"baseline.appArmorProfile"}},
		"restricted": {"asks for more", "preset: restricted", pod("", ""), "", []string{
			"restricted.allowPrivilegeEscalation", "restricted.capabilities_restricted", "restricted.runAsNonRoot",
			"restricted.seccompProfile_restricted"}},
		"restricted, complies": {"a pod that complies", "preset: restricted", pod(complies, ""), "", nil},
		"restricted, old": {"a release of an old workload", "preset: restricted", pod(`"args": ["2"]`, ""),
			pod("", ""), nil},
		"lost protection": {"what the pod granted to its containers is taken away", "preset: restricted",
			pod(`"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}`,
				`"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}`),
			pod(`"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}`,
				`"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}`),
			[]string{"restricted.runAsNonRoot"}},
		"old Secret, moved": {"another entry before it does not make it new", "preset: open\nsecrets: {allowed: [mine]}",
			pod(`"envFrom": [{"secretRef": {"name": "mine"}}, {"secretRef": {"name": "old"}}]`, ""),
			pod(reads("old"), ""), nil},
		"other key": {"another key of an old Secret is new", "preset: open\nsecrets: {allowed: []}",
			pod(`"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "b"}}}]`, ""),
			pod(`"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a"}}}]`, ""),
			[]string{"secrets.allowed"}},
		"Secrets of pods": {"volumes, drivers and pulls read Secrets", "preset: open\nsecrets: {allowed: []}", pod("",
			`"imagePullSecrets": [{"name": "a"}], "volumes": [{"name": "v", "secret": {"secretName": "b"}},
			{"name": "p", "projected": {"sources": [{"secret": {"name": "c"}}]}},
			{"name": "d", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "d"}}}]`), "",
			[]string{"secrets.allowed", "secrets.allowed", "secrets.allowed", "secrets.allowed"}},
		"image volume": {"an image, too", "preset: open\nimages: {allowedPrefixes: [registry.example/]}",
			pod("", `"volumes": [{"name": "v", "image": {"reference": "evil.example/x"}}]`), "",
			[]string{"images.allowedPrefixes"}},
		"volumes": {"only listed types", "preset: open\nvolumes: {allowed: [emptyDir]}", pod("",
			`"volumes": [{"name": "a"}, {"name": "b", "emptyDir": {}}, {"name": "c", "configMap": {"name": "m"}}]`), "",
			[]string{"volumes.allowed"}},
		"account": {"another account", "preset: open\nserviceAccounts: {allowed: []}",
			pod("", `"serviceAccountName": "admin", "automountServiceAccountToken": false`),
			pod("", `"automountServiceAccountToken": false`), []string{"serviceAccounts.allowed"}},
		"certificate": {"a certificate of the pod is a credential of its account",
			"preset: open\nserviceAccounts: {allowed: []}", pod("", `"automountServiceAccountToken": false, "volumes":
			[{"name": "c", "projected": {"sources": [{"podCertificate": {"signerName": "x/y", "keyType": "ED25519"}}]}}]`), "",
			[]string{"serviceAccounts.allowed"}},
		"hidden key": {"a key in other letters does not hide one", "preset: baseline",
			`{"spec": {"hostPID": true, "hostpid": false, "containers": [{"name": "app"}]}}`, "",
			[]string{"baseline.hostNamespaces"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy, wrong := podpolicy.Decode([]byte(tc.policy))
			require.NoError(t, wrong.Err())
			judged := podpolicy.Template{Object: "Deployment shop/web", New: parsed(t, tc.next),
				Live: parsed(t, tc.live), FetchImage: fetchImage}
			var rules []string
			for _, v := range policy.Violations(judged) {
				rules = append(rules, v.Rule)
			}
			require.Equal(t, tc.rules, rules, tc.reason)
			err := policy.Check(judged)
			if len(rules) == 0 {
				require.NoError(t, err)
				return
			}
			require.True(t, failure.Is(err, failure.Refused))
			require.ErrorContains(t, err, "refuses the pods of Deployment shop/web: ")
			require.ErrorContains(t, err, "(rule "+rules[0]+")")
		})
	}
}

func TestCheck_NamesWayToAllow_ForEarlierTemplates(t *testing.T) {
	t.Parallel()
	policy := podpolicy.Policy{Preset: podpolicy.Baseline}
	err := policy.Check(podpolicy.Template{Object: "Deployment shop/web", New: parsed(t, pod("", `"hostPID": true`)),
		Live: parsed(t, pod("", "")), Earlier: true})
	require.EqualError(t, err, "the party's policy (baseline) refuses the pods of Deployment shop/web: host "+
		"namespaces: hostPID=true (rule baseline.hostNamespaces). This is an earlier version: to return to it, ask "+
		"the party to allow that in --release-policy-file of its worker, or release a version that complies")
}

// What the engine adds to fetch a package is known by its exact form. It complies with the preset restricted if the
// container that gets the package does.
func TestViolations_OfFetchedPackages(t *testing.T) {
	t.Parallel()
	const secured = `"securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 1000,
		"capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}`
	deployed := func(t *testing.T, change func(map[string]any)) *corev1.PodTemplateSpec {
		var template map[string]any
		require.NoError(t, json.Unmarshal([]byte(pod(secured, "")), &template))
		p := source.Package{URL: "https://x.example/a.zip", SHA256: "aa", Container: "app", MountPath: "/code",
			Credentials: "creds"}
		p.Put(template, source.Fetcher{Image: fetchImage, Limits: source.DefaultLimits}, p.URL)
		change(template["spec"].(map[string]any)["initContainers"].([]any)[0].(map[string]any))
		parsed, err := podpolicy.Parse(template)
		require.NoError(t, err)
		return parsed
	}
	policy := podpolicy.Policy{Preset: podpolicy.Restricted, Lists: podpolicy.Lists{
		ImagePrefixes: []string{"registry.example/"}, Secrets: []string{"creds"}, Volumes: []string{}}}
	for name, change := range map[string]func(map[string]any){
		"as written": func(map[string]any) {},
		"as stored": func(c map[string]any) {
			c["terminationMessagePath"], c["terminationMessagePolicy"] = "/dev/termination-log", "File"
			c["imagePullPolicy"] = "IfNotPresent"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			judged := podpolicy.Template{New: deployed(t, change), Live: parsed(t, pod(secured, "")),
				FetchImage: fetchImage}
			require.Empty(t, policy.Violations(judged))
			judged.FetchImage = "another:1"
			require.NotEmpty(t, policy.Violations(judged), "another image is judged like every container")
			require.Empty(t, podpolicy.Policy{Preset: podpolicy.Restricted}.Violations(judged), "its form complies")
			strict := policy
			strict.Secrets = []string{}
			judged.FetchImage = fetchImage
			require.NotEmpty(t, strict.Violations(judged), "the release names the Secret of the credentials")
		})
	}
	for name, change := range map[string]func(map[string]any){
		"a command":    func(c map[string]any) { c["command"] = []any{"sh"} },
		"another verb": func(c map[string]any) { c["args"].([]any)[0] = "server" },
		"a mount": func(c map[string]any) {
			c["volumeMounts"] = append(c["volumeMounts"].([]any), map[string]any{"name": "v", "mountPath": "/v"})
		},
		"environment": func(c map[string]any) { c["envFrom"] = []any{map[string]any{"prefix": "x"}} },
		"a privilege": func(c map[string]any) { c["securityContext"].(map[string]any)["privileged"] = true },
		"a sidecar":   func(c map[string]any) { c["restartPolicy"] = "Always" },
		"another user": func(c map[string]any) {
			c["securityContext"].(map[string]any)["runAsUser"] = float64(0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, policy.Violations(podpolicy.Template{New: deployed(t, change),
				Live: parsed(t, pod(secured, "")), FetchImage: fetchImage}), "it is not the engine's own")
		})
	}
}

// The names that the engine gives to its container and volumes allow nothing to other containers.
func TestViolations_OfNamesOfEngine(t *testing.T) {
	t.Parallel()
	policy := podpolicy.Policy{Preset: podpolicy.Open, Lists: podpolicy.Lists{
		ImagePrefixes: []string{"registry.example/"}, Volumes: []string{}}}
	var template map[string]any
	require.NoError(t, json.Unmarshal([]byte(pod("", "")), &template))
	p := source.Package{URL: "https://x.example/a.zip", SHA256: "aa", Container: "app", MountPath: "/code",
		Credentials: "creds"}
	p.Put(template, source.Fetcher{Image: fetchImage, Limits: source.DefaultLimits}, p.URL)
	judged, err := podpolicy.Parse(template)
	require.NoError(t, err)
	require.Empty(t, policy.Violations(podpolicy.Template{New: judged, FetchImage: fetchImage}))

	reads := judged.DeepCopy()
	reads.Spec.Containers[0].VolumeMounts = append(reads.Spec.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: source.VolumeCredentials, MountPath: "/creds"})
	require.Len(t, policy.Violations(podpolicy.Template{New: reads, FetchImage: fetchImage}), 1, "of the credentials")
	foreign := judged.DeepCopy()
	foreign.Spec.Containers[0].VolumeMounts = nil
	require.Len(t, policy.Violations(podpolicy.Template{New: foreign, FetchImage: fetchImage}), 3, "no container gets "+
		"the package: an image and two volumes")
}

// A template of the largest size that the API server stores is judged within seconds, however much it violates.
func TestViolations_OfHugeTemplates(t *testing.T) {
	t.Parallel()
	huge := func(image string) *corev1.PodTemplateSpec {
		template := &corev1.PodTemplateSpec{}
		for i := range 10_000 {
			template.Spec.Containers = append(template.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i),
				Image: image, SecurityContext: &corev1.SecurityContext{Privileged: new(true)}})
		}
		return template
	}
	policy := podpolicy.Policy{Preset: podpolicy.Restricted, Lists: podpolicy.Lists{ImagePrefixes: []string{"x"}}}
	began := time.Now()
	err := policy.Check(podpolicy.Template{Object: "Deployment shop/web", New: huge("evil/" + strings.Repeat("x", 500)),
		Live: huge("old")})
	require.Less(t, time.Since(began), 20*time.Second)
	require.ErrorContains(t, err, "(rule images.allowedPrefixes)")
	require.ErrorContains(t, err, "and 9980 further violations")
	require.Less(t, len(err.Error()), 10_000, "the message is limited")
}

func TestDecode(t *testing.T) {
	t.Parallel()
	policy, wrong := podpolicy.Decode([]byte("preset: restricted\nimages: {allowedPrefixes: [r.example/]}\n" +
		"secrets: {allowed: [a]}\nserviceAccounts: {allowed: []}\nvolumes: {allowed: [emptyDir]}\ntemplatePatch: false\n"))
	require.NoError(t, wrong.Err())
	require.Equal(t, podpolicy.Lists{ImagePrefixes: []string{"r.example/"}, Secrets: []string{"a"},
		ServiceAccounts: []string{}, Volumes: []string{"emptyDir"}}, policy.Lists)
	require.Equal(t, podpolicy.Restricted, policy.Preset)
	require.Regexp(t, `^restricted sha256:[0-9a-f]{12}$`, policy.String())
	require.ErrorContains(t, policy.CheckTemplatePatch("Deployment shop/web"), "(rule templatePatch)")
	require.NoError(t, podpolicy.Policy{}.CheckTemplatePatch("Deployment shop/web"))
	for text, want := range map[string]string{
		"":                            "is empty",
		"{}":                          "preset: is missing",
		"preset: strict":              `preset: "strict" is no preset`,
		"preset:":                     "preset: has no value",
		"preset: open\nhostPID: true": `unknown key "hostPID"`,
		"preset: open\nvolumes: {allowed: [hostpath]}":  "did you mean hostPath?",
		"preset: open\ntemplatePatch: 'no'":             "templatePatch: must be true or false",
		"preset: open\nimages: {allowedPrefixes: []}":   "allows no image",
		"preset: open\nserviceAccounts: {allowed: [A]}": "is not the name of a ServiceAccount",
	} {
		_, wrong := podpolicy.Decode([]byte(text))
		require.ErrorContains(t, wrong.Err(), want, text)
	}
}
