package kuscia

import (
	"regexp"

	"slipway.io/slipway/api/kuscia/kusciapb"
)

// legalName is what a serving and an AppImage may be called.
var legalName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// checkName refuses a name that is not legal, in Kuscia's words, the blank at their end included.
func checkName(field, name string) error {
	if !legalName.MatchString(name) {
		return invalid("Field %q is invalid, invalid value: %q: regex used for validation is %q ", field, name, legalName.String())
	}
	return nil
}

func checkNamed(name string) error {
	if name == "" {
		return invalid("appimage name can not be empty")
	}
	return nil
}

func checkNewAppImage(r *kusciapb.CreateAppImageRequest) error {
	if err := checkNamed(r.GetName()); err != nil {
		return err
	}
	if err := checkBase(r.GetImage()); err != nil {
		return err
	}
	if err := checkTemplates(r.GetDeployTemplates()); err != nil {
		return err
	}
	return checkName("appimage_id", r.GetName())
}

func checkChangedAppImage(r *kusciapb.UpdateAppImageRequest) error {
	if err := checkNamed(r.GetName()); err != nil {
		return err
	}
	if err := checkBase(r.GetImage()); err != nil {
		return err
	}
	if len(r.GetDeployTemplates()) == 0 {
		return nil
	}
	return checkTemplates(r.GetDeployTemplates())
}

func checkBase(image *kusciapb.AppImageInfo) error {
	if image.GetName() == "" {
		return invalid("base image name can not be empty")
	}
	return nil
}

func checkTemplates(templates []*kusciapb.DeployTemplate) error {
	if len(templates) == 0 {
		return invalid("deploy templates can not be empty")
	}
	for _, template := range templates {
		switch {
		case template.GetName() == "":
			return invalid("deploy template name can not be empty")
		case len(template.GetContainers()) == 0:
			return invalid("containers can not be empty")
		case template.GetReplicas() < 0:
			return invalid("replicas can not be less than 0")
		}
		for _, container := range template.GetContainers() {
			if container.GetName() == "" {
				return invalid("container name can not be empty")
			}
		}
	}
	return nil
}
