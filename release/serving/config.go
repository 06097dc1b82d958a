package serving

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving/config"
)

// configuration holds the files of a party's ConfigMap, and the mounts of each container by its name.
type configuration struct {
	files  map[string]string
	mounts map[string][]corev1.VolumeMount
}

const configVolume = "config-template"

// configure renders the templates for each container that mounts them. If the environments of two containers lead to
// different files, the second file is named <container>.<name>. A template that no container mounts is rendered with
// the environment of the first container.
func (d renderInput) configure(given []variable) (configuration, error) {
	all := configuration{files: map[string]string{}, mounts: map[string][]corev1.VolumeMount{}}
	keys := map[[2]string]string{}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(d.configs)) {
		for _, c := range d.containersMounting(name) {
			text, err := config.Render(d.configs[name], variablesOf(c, given))
			if err != nil {
				return configuration{}, fmt.Errorf("config template %s of AppImage %s %w", name, d.party.AppImageRef,
					err)
			}
			key := name
			if other, there := all.files[name]; there && other != text {
				key = c.Name + "." + name
			}
			if _, taken := d.configs[key]; taken && key != name {
				return configuration{}, fmt.Errorf(
					"config template %s of AppImage %s differs for container %s, and the name %s is taken: "+
						"rename that template", name, d.party.AppImageRef, c.Name, key)
			}
			if _, there := all.files[key]; !there {
				size += len(key) + len(text)
			}
			if size > config.MaxSize {
				return configuration{}, fmt.Errorf(
					"config templates of AppImage %s become larger than %d bytes together: a ConfigMap holds no more",
					d.party.AppImageRef, config.MaxSize)
			}
			all.files[key] = text
			keys[[2]string{c.Name, name}] = key
		}
	}
	for _, c := range d.template.Spec.Containers {
		for _, m := range c.ConfigVolumeMounts {
			mount := corev1.VolumeMount{Name: configVolume, MountPath: m.MountPath,
				SubPath: keys[[2]string{c.Name, m.SubPath}]}
			all.mounts[c.Name] = append(all.mounts[c.Name], mount)
		}
	}
	return all, nil
}

// containersMounting returns the containers that mount the file; if there are none, the first container.
func (d renderInput) containersMounting(file string) []kuscia.Container {
	readers := slices.DeleteFunc(slices.Clone(d.template.Spec.Containers), func(c kuscia.Container) bool {
		return !slices.ContainsFunc(c.ConfigVolumeMounts, func(m kuscia.ConfigVolumeMount) bool {
			return m.SubPath == file
		})
	})
	if len(readers) == 0 {
		return d.template.Spec.Containers[:1]
	}
	return readers
}

func (c configuration) digest() string {
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		fmt.Fprintf(sum, "%d:%s%d:%s", len(name), name, len(c.files[name]), c.files[name])
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// variable is an environment variable that every container receives.
type variable struct{ name, value string }

// injectedVariables returns the variables that every container of a party receives, in Kuscia's order.
func (d renderInput) injectedVariables(cluster []clusterParty) []variable {
	all := []variable{
		{"KUSCIA_DOMAIN_ID", d.party.DomainID},
		{"CLUSTER_DEFINE", compact(clusterDefine{Parties: cluster, SelfPartyIdx: d.index})},
		{"ALLOCATED_PORTS", d.allocatedPorts()},
		{"INPUT_CONFIG", d.version.Spec.InputConfig},
	}
	for _, p := range d.ports {
		name := strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_"))
		all = append(all, variable{"KUSCIA_PORT_" + name + "_NUMBER", fmt.Sprint(p.Port)})
	}
	if d.version.AppType == kuscia.AppTypeServing {
		all = append(all, variable{"SERVING_ID", d.version.ID})
	}
	return all
}

// envOf returns a container's own environment followed by the injected variables. Dollars in their values are doubled,
// because Kubernetes expands $(NAME) and $$.
func envOf(c kuscia.Container, given []variable) []corev1.EnvVar {
	all := slices.Clone(c.Env)
	for _, v := range given {
		all = append(all, corev1.EnvVar{Name: v.name, Value: strings.ReplaceAll(v.value, "$", "$$")})
	}
	return all
}

// variablesOf returns what a container's configuration files may use: its environment, by upper-case name.
func variablesOf(c kuscia.Container, given []variable) config.Variables {
	vars := config.Variables{Values: map[string]string{}, Unknown: map[string]bool{}}
	for _, e := range c.Env {
		name := strings.ToUpper(e.Name)
		vars.Values[name] = e.Value
		vars.Unknown[name] = e.ValueFrom != nil
	}
	for _, v := range given {
		vars.Values[v.name] = v.value
		delete(vars.Unknown, v.name)
	}
	return vars
}
