package kuscia

import (
	corev1 "k8s.io/api/core/v1"

	"slipway.io/slipway/api/kuscia/kusciapb"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// appImageData is an AppImage as it is answered.
func appImageData(image *kuscia.AppImage) *kusciapb.QueryAppImageResponseData {
	info := image.Spec.Image
	return &kusciapb.QueryAppImageResponseData{
		Name:            image.Name,
		Image:           &kusciapb.AppImageInfo{Name: info.Name, Tag: info.Tag, Id: info.ID, Sign: info.Sign},
		ConfigTemplates: image.Spec.ConfigTemplates,
		DeployTemplates: each(image.Spec.DeployTemplates, showTemplate),
	}
}

// each is what becomes of every element of a list.
func each[S, D any](list []S, of func(S) D) []D {
	made := make([]D, len(list))
	for i, one := range list {
		made[i] = of(one)
	}
	return made
}

func showTemplate(t kuscia.DeployTemplate) *kusciapb.DeployTemplate {
	shown := &kusciapb.DeployTemplate{Name: t.Name, Role: t.Role, RestartPolicy: string(t.Spec.RestartPolicy), Containers: each(t.Spec.Containers, showContainer)}
	if t.Replicas != nil {
		shown.Replicas = *t.Replicas
	}
	return shown
}

func showContainer(c kuscia.Container) *kusciapb.Container {
	return &kusciapb.Container{
		Name: c.Name, Command: c.Command, Args: c.Args, WorkingDir: c.WorkingDir, ImagePullPolicy: string(c.ImagePullPolicy),
		ConfigVolumeMounts: each(c.ConfigVolumeMounts, func(m kuscia.ConfigVolumeMount) *kusciapb.ConfigVolumeMount {
			return &kusciapb.ConfigVolumeMount{MountPath: m.MountPath, SubPath: m.SubPath}
		}),
		Ports: each(c.Ports, func(p kuscia.ContainerPort) *kusciapb.ContainerPort {
			return &kusciapb.ContainerPort{Name: p.Name, Protocol: string(p.Protocol), Scope: string(p.Scope)}
		}),
		EnvFrom:       each(c.EnvFrom, showEnvFrom),
		Env:           each(c.Env, func(e corev1.EnvVar) *kusciapb.EnvVar { return &kusciapb.EnvVar{Name: e.Name, Value: e.Value} }),
		Resources:     showResources(c.Resources),
		LivenessProbe: showProbe(c.LivenessProbe), ReadinessProbe: showProbe(c.ReadinessProbe), StartupProbe: showProbe(c.StartupProbe),
	}
}

func showEnvFrom(source corev1.EnvFromSource) *kusciapb.EnvFromSource {
	shown := &kusciapb.EnvFromSource{Prefix: source.Prefix}
	if source.ConfigMapRef != nil {
		shown.ConfigMapRef = &kusciapb.ConfigMapEnvSource{Name: source.ConfigMapRef.Name}
	}
	if source.SecretRef != nil {
		shown.SecretRef = &kusciapb.SecretEnvSource{Name: source.SecretRef.Name}
	}
	return shown
}

func showResources(r corev1.ResourceRequirements) *kusciapb.ResourceRequirements {
	if len(r.Limits) == 0 && len(r.Requests) == 0 {
		return nil
	}
	return &kusciapb.ResourceRequirements{Limits: showQuantities(r.Limits), Requests: showQuantities(r.Requests)}
}

func showQuantities(list corev1.ResourceList) *kusciapb.ResourceSpec {
	if len(list) == 0 {
		return nil
	}
	shown := &kusciapb.ResourceSpec{}
	if cpu, there := list[corev1.ResourceCPU]; there {
		shown.Cpu = cpu.String()
	}
	if memory, there := list[corev1.ResourceMemory]; there {
		shown.Memory = memory.String()
	}
	return shown
}

// showProbe shows a numeric port too, as text: Kuscia leaves it out, and a client that sends back what it read would lose it.
func showProbe(p *corev1.Probe) *kusciapb.Probe {
	if p == nil {
		return nil
	}
	shown := &kusciapb.Probe{InitialDelaySeconds: p.InitialDelaySeconds, TimeoutSeconds: p.TimeoutSeconds, PeriodSeconds: p.PeriodSeconds,
		SuccessThreshold: p.SuccessThreshold, FailureThreshold: p.FailureThreshold}
	if p.Exec != nil {
		shown.Exec = &kusciapb.ExecAction{Command: p.Exec.Command}
	}
	if get := p.HTTPGet; get != nil {
		shown.HttpGet = &kusciapb.HTTPGetAction{Path: get.Path, Port: get.Port.String(), Host: get.Host, Scheme: string(get.Scheme),
			HttpHeaders: each(get.HTTPHeaders, func(h corev1.HTTPHeader) *kusciapb.HTTPHeader {
				return &kusciapb.HTTPHeader{Name: h.Name, Value: h.Value}
			})}
	}
	if p.TCPSocket != nil {
		shown.TcpSocket = &kusciapb.TCPSocketAction{Port: p.TCPSocket.Port.String(), Host: p.TCPSocket.Host}
	}
	if p.GRPC != nil {
		shown.Grpc = &kusciapb.GRPCAction{Port: p.GRPC.Port}
		if p.GRPC.Service != nil {
			shown.Grpc.Service = *p.GRPC.Service
		}
	}
	if p.TerminationGracePeriodSeconds != nil {
		shown.TerminationGracePeriodSeconds = *p.TerminationGracePeriodSeconds
	}
	return shown
}
