package serving

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// Objects are the objects of one party in its namespace.
type Objects struct {
	// ConfigMap holds the rendered configuration files; nil if there are none.
	ConfigMap *corev1.ConfigMap
	// Services are those of the party's Cluster and Domain ports, in the order of the template.
	Services   []*corev1.Service
	Deployment *appsv1.Deployment
}

// AnnotationConfigDigest on pods is the digest of their configuration files. It replaces pods when files change,
// because a file that is mounted by subPath is not refreshed in a running pod.
const AnnotationConfigDigest = "slipway.io/config-digest"

// Labels and annotations that Kuscia reads on a party's objects.
const (
	labelPortScope           = "kuscia.secretflow/port-scope"
	labelLoadBalancer        = "kuscia.secretflow/loadbalancer"
	labelServer              = "kuscia.secretflow/communication-role-server"
	labelClient              = "kuscia.secretflow/communication-role-client"
	annotationProtocol       = "kuscia.secretflow/protocol"
	annotationAccessDomain   = "kuscia.secretflow/access-domain"
	annotationSessionCookie  = "kuscia.secretflow/sticky-session-cookie"
	annotationSessionSeconds = "kuscia.secretflow/sticky-session-ttl"
	annotationImageID        = "kuscia.secretflow/image-id"
	annotationMetricPath     = "kuscia.secretflow/metric_path"
	annotationMetricPort     = "kuscia.secretflow/metric_port"
)

// Settings of every Deployment.
const (
	// progressDeadlineSeconds is the time without progress after which Kubernetes reports a Deployment as stuck.
	progressDeadlineSeconds = 600
	// revisionHistoryLimit is the number of ReplicaSets to which a user can roll back manually; Slipway rolls back to
	// the version that served.
	revisionHistoryLimit = 10
	// defaultMax is the default of maxSurge and maxUnavailable.
	defaultMax = "25%"
)

// Render renders the objects of one party. The result depends only on the version. It refuses a version that has any
// problem found by Check.
func Render(v Version, party int) (Objects, error) {
	d, err := v.renderInput(party)
	if err != nil {
		return Objects{}, failure.New(failure.Refused, "serving %s: %s", v.ID, err)
	}
	if problems := v.checkDeclared(); len(problems) > 0 {
		return Objects{}, failure.New(failure.Refused, "serving %s: %s", v.ID, problems[0].Message)
	}
	given := d.injectedVariables(v.clusterParties())
	files, err := d.configure(given)
	if err != nil {
		return Objects{}, failure.New(failure.Refused, "serving %s: %s: %s", v.ID, partyName(d.party), err)
	}
	objects := Objects{Deployment: d.deployment(given, files)}
	if len(files.files) > 0 {
		objects.ConfigMap = &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: d.metadata(configMapName(d.name)),
			Data:       files.files,
		}
	}
	for _, p := range d.exposedPorts() {
		objects.Services = append(objects.Services, d.service(p))
	}
	return objects, nil
}

// metadata returns the metadata common to all objects of a party.
func (d renderInput) metadata(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: d.party.DomainID,
		Annotations: map[string]string{kuscia.AnnotationInitiator: d.version.Spec.Initiator},
		Labels: map[string]string{
			kuscia.LabelController:     kuscia.ControllerName,
			kuscia.LabelDeploymentName: d.version.ID,
			kuscia.LabelDeploymentUID:  d.version.UID,
			kuscia.LabelWorkload:       d.name,
			kuscia.LabelOwnerNamespace: kuscia.Namespace,
		},
	}
}

func (d renderInput) service(p kuscia.ContainerPort) *corev1.Service {
	meta := d.metadata(serviceName(d.party, d.name, p.Name))
	meta.Labels[labelPortScope] = string(p.Scope)
	if p.Scope == kuscia.ScopeCluster {
		meta.Labels[labelLoadBalancer] = "domainroute"
	}
	meta.Annotations[annotationProtocol] = string(p.Protocol)
	meta.Annotations[annotationAccessDomain] = d.accessDomains(p)
	meta.Annotations[annotationSessionCookie] = "KUSCIA_SESSION"
	meta.Annotations[annotationSessionSeconds] = "86400s"
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta,
		Spec: corev1.ServiceSpec{
			Type:      corev1.ServiceTypeClusterIP,
			ClusterIP: corev1.ClusterIPNone,
			Selector:  map[string]string{kuscia.LabelWorkload: d.name},
			Ports: []corev1.ServicePort{{
				Name: p.Name, Port: p.Port, TargetPort: intstr.FromString(p.Name), Protocol: corev1.ProtocolTCP,
			}},
		},
	}
}

// deployment renders the party's Deployment. Its selector is the same in all versions, because Kubernetes does not
// allow changes of it.
func (d renderInput) deployment(given []variable, files configuration) *appsv1.Deployment {
	meta := d.metadata(d.name)
	meta.Labels[labelServer], meta.Labels[labelClient] = "true", "true"
	selector := maps.Clone(meta.Labels)
	if d.version.AppType != "" {
		meta.Labels[kuscia.LabelAppType] = d.version.AppType
	}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas:                new(d.version.Replicas(d.index)),
			Selector:                &metav1.LabelSelector{MatchLabels: selector},
			Strategy:                strategy(d.party.Template.Strategy),
			ProgressDeadlineSeconds: new(int32(progressDeadlineSeconds)),
			RevisionHistoryLimit:    new(int32(revisionHistoryLimit)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(meta.Labels), Annotations: d.podAnnotations(files)},
				Spec:       d.podSpec(given, files),
			},
		},
	}
}

func (d renderInput) podAnnotations(files configuration) map[string]string {
	annotations := map[string]string{}
	if len(files.files) > 0 {
		annotations[AnnotationConfigDigest] = files.digest()
	}
	if d.image.ID != "" {
		annotations[annotationImageID] = d.image.ID
	}
	for _, c := range d.template.Spec.Containers {
		if c.MetricProbe != nil {
			annotations[annotationMetricPath] = c.MetricProbe.Path
			annotations[annotationMetricPort] = strconv.Itoa(int(d.portNumber(c.MetricProbe.Port)))
		}
	}
	return annotations
}

func (d renderInput) portNumber(port string) int32 {
	for _, p := range d.ports {
		if p.Name == port {
			return p.Port
		}
	}
	return 0
}

// podSpec renders the pod spec, without the scheduler, node selector and toleration of Kuscia's own nodes.
func (d renderInput) podSpec(given []variable, files configuration) corev1.PodSpec {
	spec := corev1.PodSpec{
		AutomountServiceAccountToken: new(bool),
		Affinity:                     d.affinity(),
	}
	for _, c := range d.template.Spec.Containers {
		spec.Containers = append(spec.Containers, d.container(c, given, files.mounts[c.Name]))
	}
	if len(files.mounts) > 0 {
		spec.Volumes = []corev1.Volume{{Name: configVolume,
			VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: configMapName(d.name)},
			}}}}
	}
	return spec
}

func (d renderInput) container(c kuscia.Container, given []variable, mounts []corev1.VolumeMount) corev1.Container {
	var ports []corev1.ContainerPort
	for _, p := range c.Ports {
		ports = append(ports, corev1.ContainerPort{Name: p.Name, ContainerPort: d.portNumber(p.Name),
			Protocol: corev1.ProtocolTCP})
	}
	return corev1.Container{
		Name:                     c.Name,
		Image:                    fmt.Sprintf("%s:%s", d.image.Name, d.image.Tag),
		Command:                  c.Command,
		Args:                     c.Args,
		WorkingDir:               c.WorkingDir,
		Ports:                    ports,
		EnvFrom:                  c.EnvFrom,
		Env:                      envOf(c, given),
		Resources:                c.Resources,
		VolumeMounts:             mounts,
		LivenessProbe:            c.LivenessProbe,
		ReadinessProbe:           c.ReadinessProbe,
		StartupProbe:             c.StartupProbe,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		ImagePullPolicy:          cmp.Or(c.ImagePullPolicy, corev1.PullIfNotPresent),
		SecurityContext:          c.SecurityContext,
	}
}

// strategy returns the party's update strategy with Kuscia's defaults for absent fields.
func strategy(own *appsv1.DeploymentStrategy) appsv1.DeploymentStrategy {
	if own != nil && own.Type == appsv1.RecreateDeploymentStrategyType {
		return appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	rolling := appsv1.RollingUpdateDeployment{}
	if own != nil && own.RollingUpdate != nil {
		rolling = *own.RollingUpdate.DeepCopy()
	}
	rolling.MaxSurge = cmp.Or(rolling.MaxSurge, new(intstr.FromString(defaultMax)))
	rolling.MaxUnavailable = cmp.Or(rolling.MaxUnavailable, new(intstr.FromString(defaultMax)))
	return appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &rolling}
}

const (
	affinityNone = "none"
	affinitySame = "affinity"
	affinityAnti = "anti-affinity"
)

const affinityWeight = 100

// affinity returns the party's own affinity or that of its template; else, by the serving's affinity mode, none, or a
// preference for the same host or for different hosts.
func (d renderInput) affinity() *corev1.Affinity {
	if own := d.template.Spec.Affinity; own != nil {
		return d.selectOwnPods(own.DeepCopy())
	}
	terms := []corev1.WeightedPodAffinityTerm{{
		Weight:          affinityWeight,
		PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: d.ownPods(), TopologyKey: corev1.LabelHostname},
	}}
	switch d.version.AffinityMode {
	case affinityNone:
		return nil
	case affinitySame:
		return &corev1.Affinity{
			PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}}
	}
	return &corev1.Affinity{
		PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}}
}

func (d renderInput) ownPods() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{kuscia.LabelWorkload: d.name}}
}

// selectOwnPods makes terms without a selector select the party's own pods, whose labels the author of an AppImage
// cannot know.
func (d renderInput) selectOwnPods(a *corev1.Affinity) *corev1.Affinity {
	fill := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for i := range required {
			required[i].LabelSelector = cmp.Or(required[i].LabelSelector, d.ownPods())
		}
		for i := range preferred {
			preferred[i].PodAffinityTerm.LabelSelector = cmp.Or(preferred[i].PodAffinityTerm.LabelSelector, d.ownPods())
		}
	}
	if near := a.PodAffinity; near != nil {
		fill(near.RequiredDuringSchedulingIgnoredDuringExecution, near.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if apart := a.PodAntiAffinity; apart != nil {
		fill(apart.RequiredDuringSchedulingIgnoredDuringExecution,
			apart.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return a
}

// DeploymentName returns the name of the Deployment of a serving's party with that role: <id> or <id>-<role>.
func DeploymentName(id, role string) string {
	if role == "" {
		return id
	}
	return id + "-" + role
}

func configMapName(deployment string) string { return deployment + "-configtemplate" }

// serviceName returns the name of a port's Service: the party's prefix, else the Deployment's name with "-" for its
// dots, since the name of a Service is a DNS label. The end of a name that is too long is replaced by a hash.
func serviceName(party kuscia.Party, deployment, port string) string {
	if party.ServiceNamePrefix != "" {
		return party.ServiceNamePrefix + "-" + port
	}
	base := strings.Trim(strings.ReplaceAll(deployment, ".", "-"), "-")
	if base != "" && base[0] >= '0' && base[0] <= '9' {
		base = "svc-" + base
	}
	name := base + "-" + port
	room := validation.DNS1035LabelMaxLength - len("svc-") - len("-") - digestDigits - len("-") - len(port)
	if len(name) <= validation.DNS1035LabelMaxLength || room < 1 {
		return name
	}
	return "svc-" + base[:room] + "-" + shortDigest([]byte(base)) + "-" + port
}

// PartyName returns the name of a party in lists: its domain, followed by its role if it has one.
func PartyName(p kuscia.Party) string {
	if p.Role == "" {
		return p.DomainID
	}
	return p.DomainID + "/" + p.Role
}

// partyName returns the name of a party in sentences.
func partyName(p kuscia.Party) string { return "party " + PartyName(p) }
