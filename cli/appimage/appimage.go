// Package appimage implements `slipway appimage`. AppImages are the applications that servings run.
package appimage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/api/kuscia/convert"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

type images = noun.Noun[client.AppImage, client.AppImage]

// Command is `slipway appimage`.
func Command(a *app.App) *cobra.Command {
	n := newNoun(a)
	apply := n.ApplyCommand(
		`A file contains AppImage objects (kuscia.secretflow/v1alpha1) or Kuscia requests (CreateAppImageRequest), separated
by "---". A request keeps the fields that it cannot express, such as port numbers. Servings pick up a changed AppImage
with their next update.`,
		`  slipway appimage apply -f image.yaml`, manifest.Applier{
			Read: func(files []string, _ string) ([]manifest.Document, error) {
				return manifest.KusciaReader{Kind: manifest.KindAppImage}.Read(n.App, files)
			},
			Put: func(ctx context.Context, api *client.Client, d manifest.Document) (manifest.Result, error) {
				return Put(ctx, api, d, false)
			},
		})
	command := &cobra.Command{Use: n.Command, Aliases: []string{"appimages", "aimg"},
		Short: "AppImages: the applications that servings run"}
	command.AddCommand(apply, n.ListCommand("List the AppImages", nil),
		n.GetCommand("Show an AppImage", `Show an AppImage. -o json and -o yaml print the object, which
"slipway appimage apply" and kubectl apply accept.`),
		n.DeleteCommand(
			"Delete AppImages. Servings that use them keep running their current version; their next update needs "+
				"another AppImage."))
	return command
}

func newNoun(a *app.App) *images {
	return &images{
		App: a, Command: "appimage", Name: "AppImage", Argument: "NAME", Calls: noun.Calls{
			List:   apiclient.List((*client.Client).ListAppImages),
			Get:    apiclient.Named((*client.Client).GetAppImage),
			Delete: apiclient.Named((*client.Client).DeleteAppImage)},
		Key:    func(i client.AppImage) string { return i.Name },
		Note:   imageText,
		Titles: []string{"NAME", "IMAGE", "TEMPLATES"},
		Row: func(i client.AppImage) []string {
			var templates []string
			for _, t := range i.Spec.DeployTemplates {
				templates = append(templates, templateText(t))
			}
			return []string{i.Name, imageText(i), strings.Join(templates, "; ")}
		},
		Empty: "There are no AppImages: register one with kubectl apply -f FILE, or with `slipway appimage apply -f FILE`.",
		// as files contain it
		Document: func(name string, image client.AppImage) any {
			return kuscia.AppImage{TypeMeta: metav1.TypeMeta{APIVersion: kuscia.GroupVersion.String(),
				Kind: "AppImage"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: image.Spec}
		},
		Describe: func(_ string, image client.AppImage) error { return describe(a, image) },
	}
}

func imageText(image client.AppImage) string {
	return strings.TrimSuffix(image.Spec.Image.Name+":"+image.Spec.Image.Tag, ":")
}

// templateText returns, for example, "serving for client, server".
func templateText(t kuscia.DeployTemplate) string {
	if t.Role == "" {
		return t.Name
	}
	return t.Name + " for " + t.Role
}

func describe(a *app.App, image client.AppImage) error {
	a.Printf(a.Out, "AppImage %s is %s\n", render.OneLine(image.Name), render.OneLine(imageText(image)))
	table := render.NewTable("TEMPLATE", "REPLICAS", "CONTAINER", "PORTS")
	for _, t := range image.Spec.DeployTemplates {
		replicas := "set by party"
		if t.Replicas != nil {
			replicas = fmt.Sprint(*t.Replicas)
		}
		for _, c := range t.Spec.Containers {
			var ports []string
			for _, p := range c.Ports {
				ports = append(ports, fmt.Sprintf("%s (%s, %s)", p.Name, p.Protocol, p.Scope))
			}
			table.Add(templateText(t), replicas, c.Name, strings.Join(ports, ", "))
		}
	}
	a.Printf(a.Out, "\n%s", table)
	return nil
}

// Put sends an AppImage. With onlyNew it is refused if the AppImage exists with other content.
func Put(ctx context.Context, api *client.Client, d manifest.Document, onlyNew bool) (manifest.Result, error) {
	body, params := d.Body, &client.PutAppImageParams{}
	if request, is := d.Request.(convert.AppImageRequest); is {
		var problem *apiclient.ProblemError
		current, err := apiclient.Read[client.AppImage](api.GetAppImage(ctx, d.Name))
		if err != nil && (!errors.As(err, &problem) || problem.Status != http.StatusNotFound) {
			return manifest.Result{}, err
		}
		params.Generation = &current.Value.Generation
		if err = convert.SetAppImage(&current.Value.Spec, request); err == nil {
			body, err = json.Marshal(current.Value.Spec)
		}
		if err != nil {
			return manifest.Result{}, err
		}
	}
	if onlyNew {
		params.Generation = new(int64(0))
	}
	return manifest.ReadResult(api.PutAppImageWithBody(ctx, d.Name, params, apiclient.YAMLBody, bytes.NewReader(body)))
}
