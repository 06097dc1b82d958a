// Package appimage implements `slipway appimage`. AppImages are the applications that servings run.
package appimage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
)

// image is an AppImage of Kuscia's API: its raw JSON, for -o json, and the decoded message.
type image struct {
	json.RawMessage
	*kusciapb.QueryAppImageResponseData
}

type images = noun.Noun[image, *kusciapb.QueryAppImageResponseData]

// Command is `slipway appimage`.
func Command(a *app.App) *cobra.Command {
	var token apiclient.KusciaToken
	n := newNoun(a, &token)
	get := n.GetCommand("Show an AppImage")
	get.Long = `Show an AppImage, as far as Kuscia's API returns it. Some fields, such as port numbers, are only visible
with "kubectl get aimg NAME -o yaml". "slipway appimage apply" accepts the output of "-o json".`
	command := &cobra.Command{Use: n.Command, Aliases: []string{"appimages", "aimg"},
		Short: "AppImages: the applications that servings run"}
	command.AddCommand(applyCommand(n, &token), n.ListCommand("List the AppImages", noun.ListOptions{}), get,
		n.DeleteCommand(
			"Delete AppImages. Servings that use them keep running their current version; their next update needs "+
				"another AppImage."))
	return command
}

func newNoun(a *app.App, token *apiclient.KusciaToken) *images {
	return &images{
		App: a, Command: "appimage", Name: "AppImage", Argument: "NAME", Flags: token.Flags,
		Page: func(ctx context.Context, api *client.Client, limit int, cursor *string) ([]image, string, error) {
			request := client.KusciaMessage{"page_size": limit}
			if cursor != nil {
				request["page_token"] = *cursor
			}
			return page(apiclient.KusciaData(api.ListKusciaAppImages(ctx, request, token.Authorize)))
		},
		Key:    func(i image) string { return i.GetName() },
		Note:   func(i image) string { return imageText(i.QueryAppImageResponseData) },
		Titles: []string{"NAME", "IMAGE", "TEMPLATES"},
		Row: func(i image) []string {
			var templates []string
			for _, t := range i.GetDeployTemplates() {
				templates = append(templates, templateText(t))
			}
			return []string{i.GetName(), imageText(i.QueryAppImageResponseData), strings.Join(templates, "; ")}
		},
		Empty: "There are no AppImages: register one with kubectl apply -f FILE, or with `slipway appimage apply -f FILE`.",
		Read: func(ctx context.Context, api *client.Client,
			name string) (apiclient.Reply[*kusciapb.QueryAppImageResponseData], error) {
			return query(ctx, api, *token, name)
		},
		Describe: describe,
		Delete: func(ctx context.Context, api *client.Client, name string) error {
			_, err := apiclient.KusciaData(api.DeleteKusciaAppImage(ctx, client.KusciaMessage{"name": name},
				token.Authorize))
			return err
		},
	}
}

func page(data json.RawMessage, err error) (all []image, next string, _ error) {
	if err != nil {
		return nil, "", err
	}
	var page struct {
		Images []json.RawMessage `json:"appimage_list"`
		Next   string            `json:"next_page_token"`
	}
	if err := json.Unmarshal(data, &page); err != nil {
		return nil, "", fmt.Errorf("cannot decode the response: %w", err)
	}
	for _, text := range page.Images {
		one := image{text, &kusciapb.QueryAppImageResponseData{}}
		if err := apiclient.ReadKuscia(text, one.QueryAppImageResponseData); err != nil {
			return nil, "", err
		}
		all = append(all, one)
	}
	return all, page.Next, nil
}

func query(ctx context.Context, api *client.Client, token apiclient.KusciaToken,
	name string) (apiclient.Reply[*kusciapb.QueryAppImageResponseData], error) {
	reply := apiclient.Reply[*kusciapb.QueryAppImageResponseData]{Value: &kusciapb.QueryAppImageResponseData{}}
	data, err := apiclient.KusciaData(api.QueryKusciaAppImage(ctx, client.KusciaMessage{"name": name}, token.Authorize))
	if err != nil {
		return reply, err
	}
	reply.Raw = data
	return reply, apiclient.ReadKuscia(data, reply.Value)
}

func imageText(image *kusciapb.QueryAppImageResponseData) string {
	return strings.TrimSuffix(image.GetImage().GetName()+":"+image.GetImage().GetTag(), ":")
}

// templateText returns, for example, "serving for client, server".
func templateText(t *kusciapb.DeployTemplate) string {
	if t.GetRole() == "" {
		return t.GetName()
	}
	return t.GetName() + " for " + t.GetRole()
}

func describe(a *app.App, _ string, image *kusciapb.QueryAppImageResponseData) error {
	a.Printf(a.Out, "AppImage %s is %s\n", render.OneLine(image.GetName()), render.OneLine(imageText(image)))
	table := render.NewTable("TEMPLATE", "REPLICAS", "CONTAINER", "PORTS")
	for _, t := range image.GetDeployTemplates() {
		replicas := "set by party" // the message has 0 for both unset and zero
		if n := t.GetReplicas(); n > 0 {
			replicas = fmt.Sprint(n)
		}
		for _, c := range t.GetContainers() {
			var ports []string
			for _, p := range c.GetPorts() {
				ports = append(ports, fmt.Sprintf("%s (%s, %s)", p.GetName(), p.GetProtocol(), p.GetScope()))
			}
			table.Add(templateText(t), replicas, c.GetName(), strings.Join(ports, ", "))
		}
	}
	a.Printf(a.Out, "\n%s", table)
	return nil
}

func applyCommand(n *images, token *apiclient.KusciaToken) *cobra.Command {
	requests := map[string]*kusciapb.CreateAppImageRequest{}
	return n.ApplyCommand(
		`A file contains AppImage objects (kuscia.secretflow/v1alpha1) or Kuscia requests (CreateAppImageRequest), separated
by "---". An AppImage with fields that Kuscia's request does not have, such as port numbers, is rejected with the paths
of these fields: apply it with kubectl. Servings pick up a changed AppImage with their next update.`,
		`  slipway appimage apply -f image.yaml`, manifest.Applier{
			Read: func(files []string, _ string) (documents []manifest.Document, err error) {
				r := &manifest.KusciaReader{ImagesOnly: true}
				if err = r.Read(n.App, files); err != nil {
					return nil, err
				}
				for _, image := range r.Images {
					requests[image.GetName()] = image
					documents = append(documents, manifest.Document{Name: image.GetName()})
				}
				return documents, nil
			},
			Put: func(ctx context.Context, api *client.Client, d manifest.Document) (applied manifest.Result,
				err error) {
				applied.Outcome, err = Apply(ctx, api, *token, requests[d.Name], true)
				return applied, err
			},
		})
}

// Apply creates an AppImage. If it exists with another content, Apply updates it when change is true, and returns an
// error otherwise.
func Apply(ctx context.Context, api *client.Client, token apiclient.KusciaToken, image *kusciapb.CreateAppImageRequest,
	change bool) (outcome string, err error) {
	body, err := manifest.Body(image)
	if err != nil {
		return "", err
	}
	_, err = apiclient.KusciaData(api.CreateKusciaAppImageWithBody(ctx, apiclient.JSONBody, bytes.NewReader(body),
		token.Authorize))
	var refused *apiclient.KusciaError
	if err == nil || !errors.As(err, &refused) || refused.Code != apiclient.KusciaCodeAppImageExists {
		return "created", err
	}
	there, err := query(ctx, api, token, image.GetName())
	if err != nil {
		return "", err
	}
	asked := &kusciapb.QueryAppImageResponseData{Name: image.GetName(), Image: image.GetImage(),
		ConfigTemplates: image.GetConfigTemplates(),
		DeployTemplates: image.GetDeployTemplates()}
	if proto.Equal(there.Value, asked) {
		return "unchanged", nil
	}
	if !change {
		return "", errors.New("an AppImage of that name exists with other content: choose another name, or update it " +
			"with slipway appimage apply or kubectl apply")
	}
	_, err = apiclient.KusciaData(api.UpdateKusciaAppImageWithBody(ctx, apiclient.JSONBody, bytes.NewReader(body),
		token.Authorize))
	return "replaced", err
}
