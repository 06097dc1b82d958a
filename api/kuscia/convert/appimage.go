// Package convert translates Kuscia's messages to the specs of KusciaDeployments and AppImages, and AppImages back. It
// makes no calls, so that the command line translates requests too.
package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/api/kuscia/kusciapb"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// AppImageRequest is a request that creates or updates an AppImage.
type AppImageRequest interface {
	GetName() string
	GetImage() *kusciapb.AppImageInfo
	GetConfigTemplates() map[string]string
	GetDeployTemplates() []*kusciapb.DeployTemplate
}

// SetAppImage applies a request to an AppImage, which is empty if the request creates it: it sets the image, and the
// templates if the request has any.
func SetAppImage(spec *kuscia.AppImageSpec, r AppImageRequest) error {
	info := r.GetImage()
	spec.Image = kuscia.AppImageInfo{Name: info.GetName(), Tag: info.GetTag(), ID: info.GetId(), Sign: info.GetSign()}
	if len(r.GetConfigTemplates()) > 0 {
		spec.ConfigTemplates = r.GetConfigTemplates()
	}
	if len(r.GetDeployTemplates()) == 0 {
		return nil
	}
	return setTemplates(spec, r.GetDeployTemplates())
}

// setTemplates replaces the stored templates by those of the request. Each new template starts from the stored one that
// it replaces, so that fields that a request cannot express are kept.
func setTemplates(spec *kuscia.AppImageSpec, asked []*kusciapb.DeployTemplate) error {
	templates := make([]kuscia.DeployTemplate, len(asked))
	for i, t := range asked {
		templates[i] = replacedTemplate(spec.DeployTemplates, t)
		if err := fillTemplate(&templates[i], t); err != nil {
			return err
		}
	}
	spec.DeployTemplates = templates
	return nil
}

// replacedTemplate returns a copy of the stored template that t replaces: the one with the same name and role, else the
// one with the same name.
func replacedTemplate(stored []kuscia.DeployTemplate, t *kusciapb.DeployTemplate) kuscia.DeployTemplate {
	i := slices.IndexFunc(stored, func(s kuscia.DeployTemplate) bool {
		return s.Name == t.GetName() && s.Role == t.GetRole()
	})
	if i < 0 {
		i = slices.IndexFunc(stored, func(s kuscia.DeployTemplate) bool { return s.Name == t.GetName() })
	}
	if i < 0 {
		return kuscia.DeployTemplate{}
	}
	return *stored[i].DeepCopy()
}

func fillTemplate(t *kuscia.DeployTemplate, asked *kusciapb.DeployTemplate) error {
	t.Name, t.Role, t.Spec.RestartPolicy = asked.GetName(), asked.GetRole(),
		corev1.RestartPolicy(asked.GetRestartPolicy())
	// The message cannot distinguish 0 from unset, and 0 replicas as the default of every serving would be useless.
	if n := asked.GetReplicas(); n > 0 {
		t.Replicas = &n
	}
	containers := make([]kuscia.Container, len(asked.GetContainers()))
	for i, c := range asked.GetContainers() {
		containers[i], _ = byName(t.Spec.Containers, c.GetName(), func(s kuscia.Container) string { return s.Name })
		if err := fillContainer(&containers[i], c); err != nil {
			return err
		}
	}
	t.Spec.Containers = containers
	return nil
}

func byName[T any](list []T, name string, nameOf func(T) string) (found T, there bool) {
	i := slices.IndexFunc(list, func(one T) bool { return nameOf(one) == name })
	if i < 0 {
		return found, false
	}
	return list[i], true
}

func fillContainer(c *kuscia.Container, asked *kusciapb.Container) error {
	c.Name, c.Command, c.Args, c.WorkingDir = asked.GetName(), asked.GetCommand(), asked.GetArgs(),
		asked.GetWorkingDir()
	c.ImagePullPolicy = corev1.PullPolicy(asked.GetImagePullPolicy())
	c.ConfigVolumeMounts = MapSlice(asked.GetConfigVolumeMounts(),
		func(m *kusciapb.ConfigVolumeMount) kuscia.ConfigVolumeMount {
			return kuscia.ConfigVolumeMount{MountPath: m.GetMountPath(), SubPath: m.GetSubPath()}
		})
	c.Ports = MapSlice(asked.GetPorts(), func(p *kusciapb.ContainerPort) kuscia.ContainerPort {
		stored, _ := byName(c.Ports, p.GetName(), func(s kuscia.ContainerPort) string { return s.Name })
		return kuscia.ContainerPort{Name: p.GetName(), Port: stored.Port, Protocol: kuscia.PortProtocol(
			p.GetProtocol()), Scope: kuscia.PortScope(p.GetScope())}
	})
	c.EnvFrom = MapSlice(asked.GetEnvFrom(), func(e *kusciapb.EnvFromSource) corev1.EnvFromSource {
		return envFrom(c.EnvFrom, e)
	})
	c.Env = MapSlice(asked.GetEnv(), func(e *kusciapb.EnvVar) corev1.EnvVar { return env(c.Env, e) })
	c.LivenessProbe = probe(c.LivenessProbe, asked.GetLivenessProbe())
	c.ReadinessProbe = probe(c.ReadinessProbe, asked.GetReadinessProbe())
	c.StartupProbe = probe(c.StartupProbe, asked.GetStartupProbe())
	return fillResources(&c.Resources, asked.GetResources())
}

// env returns an environment variable. Without a value in the request it keeps the stored valueFrom, which a request
// cannot express.
func env(stored []corev1.EnvVar, asked *kusciapb.EnvVar) corev1.EnvVar {
	e := corev1.EnvVar{Name: asked.GetName(), Value: asked.GetValue()}
	if before, there := byName(stored, e.Name, func(s corev1.EnvVar) string { return s.Name }); there && e.Value == "" {
		e.ValueFrom = before.ValueFrom
	}
	return e
}

// envFrom returns a source of environment variables; a stored source keeps its optional flag.
func envFrom(stored []corev1.EnvFromSource, asked *kusciapb.EnvFromSource) corev1.EnvFromSource {
	e := corev1.EnvFromSource{Prefix: asked.GetPrefix()}
	if ref := asked.GetConfigMapRef(); ref != nil {
		e.ConfigMapRef = &corev1.ConfigMapEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: ref.GetName()}}
	}
	if ref := asked.GetSecretRef(); ref != nil {
		e.SecretRef = &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: ref.GetName()}}
	}
	for _, s := range stored {
		if e.ConfigMapRef != nil && s.ConfigMapRef != nil && s.ConfigMapRef.Name == e.ConfigMapRef.Name {
			e.ConfigMapRef.Optional = s.ConfigMapRef.Optional
		}
		if e.SecretRef != nil && s.SecretRef != nil && s.SecretRef.Name == e.SecretRef.Name {
			e.SecretRef.Optional = s.SecretRef.Optional
		}
	}
	return e
}

// fillResources replaces CPU and memory; other resources cannot be expressed in a request, and are kept.
func fillResources(r *corev1.ResourceRequirements, asked *kusciapb.ResourceRequirements) error {
	var err error
	if r.Limits, err = quantities(r.Limits, asked.GetLimits(), "limit"); err != nil {
		return err
	}
	r.Requests, err = quantities(r.Requests, asked.GetRequests(), "request")
	return err
}

func quantities(stored corev1.ResourceList, asked *kusciapb.ResourceSpec, kind string) (corev1.ResourceList, error) {
	list := maps.Clone(stored)
	delete(list, corev1.ResourceCPU)
	delete(list, corev1.ResourceMemory)
	for _, one := range []struct {
		name corev1.ResourceName
		text string
	}{{corev1.ResourceCPU, asked.GetCpu()}, {corev1.ResourceMemory, asked.GetMemory()}} {
		if one.text == "" {
			continue
		}
		quantity, err := resource.ParseQuantity(one.text)
		if err != nil {
			return nil, fmt.Errorf("can't parse %s %s %s to resource quantity, %w", kind, one.name, one.text, err)
		}
		if list == nil {
			list = corev1.ResourceList{}
		}
		list[one.name] = quantity
	}
	return list, nil
}

// probe returns a probe. A numeric port in the message's text becomes a number; an empty port keeps the stored one.
func probe(stored *corev1.Probe, asked *kusciapb.Probe) *corev1.Probe {
	if asked == nil {
		return nil
	}
	p := &corev1.Probe{InitialDelaySeconds: asked.GetInitialDelaySeconds(), TimeoutSeconds: asked.GetTimeoutSeconds(),
		PeriodSeconds:    asked.GetPeriodSeconds(),
		SuccessThreshold: asked.GetSuccessThreshold(), FailureThreshold: asked.GetFailureThreshold()}
	if exec := asked.GetExec(); exec != nil {
		p.Exec = &corev1.ExecAction{Command: exec.GetCommand()}
	}
	if get := asked.GetHttpGet(); get != nil {
		p.HTTPGet = &corev1.HTTPGetAction{Path: get.GetPath(), Port: intstr.Parse(get.GetPort()), Host: get.GetHost(),
			Scheme: corev1.URIScheme(get.GetScheme()),
			HTTPHeaders: MapSlice(get.GetHttpHeaders(), func(h *kusciapb.HTTPHeader) corev1.HTTPHeader {
				return corev1.HTTPHeader{Name: h.GetName(), Value: h.GetValue()}
			})}
		if get.GetPort() == "" && stored != nil && stored.HTTPGet != nil {
			p.HTTPGet.Port = stored.HTTPGet.Port
		}
	}
	if tcp := asked.GetTcpSocket(); tcp != nil {
		p.TCPSocket = &corev1.TCPSocketAction{Port: intstr.Parse(tcp.GetPort()), Host: tcp.GetHost()}
		if tcp.GetPort() == "" && stored != nil && stored.TCPSocket != nil {
			p.TCPSocket.Port = stored.TCPSocket.Port
		}
	}
	if grpc := asked.GetGrpc(); grpc != nil {
		p.GRPC = &corev1.GRPCAction{Port: grpc.GetPort()}
		if service := grpc.GetService(); service != "" {
			p.GRPC.Service = &service
		}
	}
	if seconds := asked.GetTerminationGracePeriodSeconds(); seconds != 0 {
		p.TerminationGracePeriodSeconds = &seconds
	}
	return p
}

// AppImageData returns an AppImage as queries show it.
func AppImageData(image *kuscia.AppImage) *kusciapb.QueryAppImageResponseData {
	info := image.Spec.Image
	return &kusciapb.QueryAppImageResponseData{
		Name:            image.Name,
		Image:           &kusciapb.AppImageInfo{Name: info.Name, Tag: info.Tag, Id: info.ID, Sign: info.Sign},
		ConfigTemplates: image.Spec.ConfigTemplates,
		DeployTemplates: MapSlice(image.Spec.DeployTemplates, showTemplate),
	}
}

// MapSlice applies of to every element of a list.
func MapSlice[S, D any](list []S, of func(S) D) []D {
	made := make([]D, len(list))
	for i, one := range list {
		made[i] = of(one)
	}
	return made
}

func showTemplate(t kuscia.DeployTemplate) *kusciapb.DeployTemplate {
	return &kusciapb.DeployTemplate{Name: t.Name, Role: t.Role, RestartPolicy: string(t.Spec.RestartPolicy),
		Replicas: ptr.Deref(t.Replicas, 0), Containers: MapSlice(t.Spec.Containers, showContainer)}
}

// showContainer converts a container to its message, whose JSON names are the same. It converts numeric probe ports to
// text: Kuscia omits them, and a client that sends back what it has read would lose them.
func showContainer(c kuscia.Container) *kusciapb.Container {
	c = *c.DeepCopy()
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p != nil && p.HTTPGet != nil {
			p.HTTPGet.Port = intstr.FromString(p.HTTPGet.Port.String())
		}
		if p != nil && p.TCPSocket != nil {
			p.TCPSocket.Port = intstr.FromString(p.TCPSocket.Port.String())
		}
	}
	shown := &kusciapb.Container{}
	raw, err := json.Marshal(c)
	if err == nil {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, shown)
	}
	if err != nil {
		panic(err) // the message has all fields of this JSON
	}
	if shown.GetResources().GetLimits() == nil && shown.GetResources().GetRequests() == nil {
		shown.Resources = nil
	}
	return shown
}
