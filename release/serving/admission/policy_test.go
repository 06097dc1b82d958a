package admission_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving/admission"
)

func TestCheck_RefusesViolations(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	unmasked, standard := corev1.UnmaskedProcMount, corev1.DefaultProcMount
	image := func(name string) corev1.Container { return corev1.Container{Name: "app", Image: name} }
	secured := func(sc corev1.SecurityContext) corev1.Container {
		return corev1.Container{Name: "app", Image: "x:1", SecurityContext: &sc}
	}
	adds := func(list ...corev1.Capability) corev1.Container {
		return secured(corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"},
			Add: list}})
	}
	reads := corev1.Container{Name: "app", Image: "x:1",
		EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "all"}}}},
		Env: []corev1.EnvVar{{Name: "PLAIN", Value: "1"}, {Name: "KEY", ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "model"},
				Key: "k"}}}}}
	from := func(prefixes ...string) admission.Policy { return admission.Policy{ImagePrefixes: prefixes} }
	secrets := func(names ...string) admission.Policy { return admission.Policy{Secrets: append([]string{}, names...)} }
	for name, tc := range map[string]struct {
		reason    string
		policy    admission.Policy
		container corev1.Container
		broken    []string
	}{
		"any image": {reason: "without the rule any image is taken",
			container: image("evil.example/x:1")},
		"below a prefix": {reason: "a prefix that ends with / covers what is below it",
			policy: from("registry.example/"), container: image("registry.example/team/x:1")},
		"the repository": {reason: "a prefix may be the repository itself, whatever the tag and the digest",
			policy: from("registry.example/x"), container: image("registry.example/x:1@sha256:aa")},
		"below the repository": {reason: "and covers what is below it", policy: from("registry.example/team"),
			container: image("registry.example/team/x")},
		"one of several": {reason: "one prefix that fits is enough",
			policy: from("a.example/", "localhost:5000/"), container: image("localhost:5000/x:1")},
		"another repository": {reason: "a prefix matches complete path elements",
			policy: from("registry.example/team"), container: image("registry.example/teams/x:1"),
			broken: []string{"image registry.example/teams/x:1 comes from none of registry.example/team (rule " +
				"images.allowedPrefixes)"}},
		"another registry": {reason: "a registry does not match a longer registry name",
			policy: from("registry.example/"), container: image("registry.example.evil/x:1"),
			broken: []string{"comes from none of registry.example/ (rule"}},
		"another port": {reason: "another port is another registry", policy: from("registry.example"),
			container: image("registry.example:5000/x:1"), broken: []string{"image registry.example:5000/x:1"}},
		"named like the registry": {reason: "an image named like the registry does not come from it",
			policy: from("registry.example/"), container: image("registry.example:1"),
			broken: []string{"image registry.example:1"}},
		"further down": {reason: "the prefix matches only at the beginning",
			policy: from("registry.example/"), container: image("evil.example/registry.example/x:1"),
			broken: []string{"image evil.example/registry.example/x:1"}},

		"no privileges": {reason: "dropping privileges is always allowed",
			container: secured(corev1.SecurityContext{Privileged: &no, AllowPrivilegeEscalation: &no,
				RunAsNonRoot: &yes, ProcMount: &standard,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				SELinuxOptions: &corev1.SELinuxOptions{Type: "container_t", Level: "s0"}})},
		"default capability": {reason: "a default capability is no privilege", container: adds("NET_BIND_SERVICE")},
		"privileged": {reason: "privileged containers control their node",
			container: secured(corev1.SecurityContext{Privileged: &yes}),
			broken:    []string{"container app: securityContext.privileged is true (rule privileged)"}},
		"escalation": {reason: "so may containers that gain privileges",
			container: secured(corev1.SecurityContext{AllowPrivilegeEscalation: &yes}),
			broken:    []string{"securityContext.allowPrivilegeEscalation is true (rule privileged)"}},
		"capabilities": {reason: "each capability is reported", container: adds("SYS_ADMIN", "CHOWN", "ALL"),
			broken: []string{"securityContext.capabilities.add has SYS_ADMIN (rule privileged)",
				"securityContext.capabilities.add has ALL (rule privileged)"}},
		"unconfined": {reason: "confinement cannot be switched off",
			container: secured(corev1.SecurityContext{ProcMount: &unmasked,
				SeccompProfile:  &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined},
				AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined},
				SELinuxOptions:  &corev1.SELinuxOptions{Role: "sysadm_r", Type: "spc_t"}}),
			broken: []string{"securityContext.procMount is not Default", "securityContext.seccompProfile is Unconfined",
				"securityContext.appArmorProfile is Unconfined",
				"securityContext.seLinuxOptions has a user or a role",
				"securityContext.seLinuxOptions.type is spc_t (rule privileged)"}},
		"probe": {reason: "the kubelet asks any host in the network of its node", container: corev1.Container{Name: "app",
			Image: "x:1", LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254"}}},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
				TCPSocket: &corev1.TCPSocketAction{Host: "10.0.0.1"}}}},
			broken: []string{"container app: livenessProbe.httpGet.host is set (rule privileged)",
				"container app: readinessProbe.tcpSocket.host is set (rule privileged)"}},
		"own probe": {reason: "a probe without a host asks the pod", container: corev1.Container{Name: "app", Image: "x:1",
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/"}}}}},
		"allowed privileges": {reason: "a party may allow them", policy: admission.Policy{Privileged: true},
			container: secured(corev1.SecurityContext{Privileged: &yes})},

		"any Secret":    {reason: "without the rule any Secret of the namespace is read", container: reads},
		"named Secrets": {reason: "listed Secrets are allowed", policy: secrets("model", "all"), container: reads},
		"another Secret": {reason: "others are refused, however they are read", policy: secrets("models"),
			container: reads, broken: []string{"container app: envFrom[1] reads Secret all (rule secrets.allowed)",
				"container app: env KEY reads Secret model (rule secrets.allowed)"}},
		"no Secret": {reason: "an empty list allows none", policy: secrets(), container: reads,
			broken: []string{"reads Secret all", "reads Secret model"}},
		"reads none": {reason: "ConfigMaps and plain values are not Secrets", policy: secrets(),
			container: corev1.Container{Name: "app", Image: "x:1", EnvFrom: reads.EnvFrom[:1], Env: reads.Env[:1]}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "alice", Name: "risk"}}
			d.Spec.Template.Spec.Containers = []corev1.Container{image("registry.example/team"), tc.container}
			if tc.policy.ImagePrefixes != nil {
				d.Spec.Template.Spec.Containers = d.Spec.Template.Spec.Containers[1:]
			}
			err := tc.policy.Check(d)
			if len(tc.broken) == 0 {
				require.NoError(t, err, tc.reason)
				return
			}
			require.True(t, failure.Is(err, failure.Refused), tc.reason)
			require.ErrorContains(t, err, "the party's policy refuses Deployment alice/risk: container app: ",
				tc.reason)
			for _, clause := range tc.broken {
				require.ErrorContains(t, err, clause, tc.reason)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, text string
		want         admission.Policy
		wrong        []string
	}{
		"nothing": {reason: "a policy without rules is the default", text: "{}"},
		"everything": {reason: "every rule", text: "images:\n  allowedPrefixes: [registry.example/team/, " +
			"'localhost:5000/']\nprivileged: true\nsecrets:\n  allowed: [model-key]\n",
			want: admission.Policy{ImagePrefixes: []string{"registry.example/team/", "localhost:5000/"},
				Privileged: true, Secrets: []string{"model-key"}}},
		"JSON": {reason: "JSON is read the same way",
			text: `{"privileged": false, "secrets": {"allowed": []}}`, want: admission.Policy{Secrets: []string{}}},
		"an empty file": {reason: "an empty file must not allow everything", text: "",
			wrong: []string{"line 1: is empty"}},
		"no value": {reason: "nor must an unfinished rule", text: "secrets:\nprivileged: false\n",
			wrong: []string{"line 1, secrets: has no value"}},
		"no list": {reason: "nor a rule without its list", text: "images: {}\nsecrets: {}\n",
			wrong: []string{"line 1, images: needs the key allowedPrefixes", "line 2, secrets: needs the key allowed"}},
		"a list without one": {reason: "an empty list would allow no image at all",
			text:  "images: {allowedPrefixes: []}\n",
			wrong: []string{"line 1, images.allowedPrefixes: allows no image"}},
		"a null list": {reason: "one reason is enough", text: "images:\n  allowedPrefixes:\n",
			wrong: []string{"line 2, images.allowedPrefixes: has no value"}},
		"a misspelt key": {reason: "an unknown rule would have no effect",
			text: "image:\n  allowedPrefixes: [x/]\nsecrets:\n  alowed: [a]\n",
			wrong: []string{`line 1, image: unknown key "image": did you mean "images"?`,
				`line 4, secrets.alowed: unknown key "alowed": did you mean "allowed"?`,
				"line 3, secrets: needs the key allowed"}},
		"what pods never get": {reason: "there is no rule for features that no serving has", text: "hostPaths: false\n",
			wrong: []string{`unknown key "hostPaths": the keys here are images, privileged, secrets`}},
		"prefixes": {reason: "a prefix that no image can match is refused",
			text: "images:\n  allowedPrefixes:\n  - https://registry.example/\n  - nginx:1.27\n  - x@sha256:aa\n  - " +
				"registry.example/*\n  - ''\n  - 5\n",
			wrong: []string{"line 3, images.allowedPrefixes[0]: \"https://registry.example/\" is a URL",
				"line 4, images.allowedPrefixes[1]: \"nginx:1.27\" names a tag",
				"line 5, images.allowedPrefixes[2]: \"x@sha256:aa\" names a digest",
				"line 6, images.allowedPrefixes[3]: \"registry.example/*\" is not a prefix of an image name",
				"line 7, images.allowedPrefixes[4]: is empty", "line 8, images.allowedPrefixes[5]: must be text"}},
		"names of Secrets": {reason: "an invalid Secret name is refused", text: "secrets: {allowed: [Model_Key]}\n",
			wrong: []string{`line 1, secrets.allowed[0]: "Model_Key" is not the name of a Secret`}},
		"kinds of values": {reason: "types are not converted", text: "privileged: 'no'\nsecrets: all\n",
			wrong: []string{"line 1, privileged: must be true or false", "line 2, secrets: must be a mapping"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, wrong := admission.Decode([]byte(tc.text))
			require.Len(t, wrong, len(tc.wrong), "%s: %v", tc.reason, wrong)
			for _, clause := range tc.wrong {
				require.ErrorContains(t, wrong, clause, tc.reason)
			}
			if len(tc.wrong) == 0 {
				require.Equal(t, tc.want, got, tc.reason)
			}
		})
	}
}
