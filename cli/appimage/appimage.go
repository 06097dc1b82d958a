// Package appimage holds the commands on AppImages, the applications that servings run.
package appimage

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
)

// Command is `slipway appimage`.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "appimage",
		Aliases: []string{"appimages", "aimg"},
		Short:   "AppImages: the applications that servings run",
	}
	command.AddCommand(applyCommand(a), listCommand(a), getCommand(a), deleteCommand(a))
	return command
}

func listCommand(a *app.App) *cobra.Command {
	var output string
	var token apiclient.KusciaToken
	command := &cobra.Command{
		Use:   "list",
		Short: "List the AppImages",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			images, err := apiclient.AllPages(0, func(limit int, cursor *string) ([]json.RawMessage, string, error) {
				return page(c.Context(), api, token, limit, cursor)
			})
			if err != nil {
				return err
			}
			return printList(a, output, images)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	token.Flags(command)
	return command
}

// page is one page of the list, its elements as they were answered.
func page(ctx context.Context, api *client.Client, token apiclient.KusciaToken, limit int, cursor *string) (images []json.RawMessage, next string, err error) {
	request := client.KusciaMessage{"page_size": limit}
	if cursor != nil {
		request["page_token"] = *cursor
	}
	data, err := apiclient.KusciaData(api.ListKusciaAppImages(ctx, request, token.Shown))
	if err != nil {
		return nil, "", err
	}
	var page struct {
		Images []json.RawMessage `json:"appimage_list"`
		Next   string            `json:"next_page_token"`
	}
	if err := json.Unmarshal(data, &page); err != nil {
		return nil, "", fmt.Errorf("the answer cannot be read: %w", err)
	}
	return page.Images, page.Next, nil
}

func printList(a *app.App, output string, images []json.RawMessage) error {
	if done, err := a.PrintObject(output, map[string]any{"items": images}); done || err != nil {
		return err
	}
	if len(images) == 0 {
		a.Printf(a.Err, "There are no AppImages: register one with kubectl apply -f FILE, or with `slipway appimage apply -f FILE`.\n")
		return nil
	}
	table := render.NewTable("NAME", "IMAGE", "TEMPLATES")
	for _, text := range images {
		image := &kusciapb.QueryAppImageResponseData{}
		if err := apiclient.ReadKuscia(text, image); err != nil {
			return err
		}
		var templates []string
		for _, t := range image.GetDeployTemplates() {
			templates = append(templates, templateInWords(t))
		}
		table.Add(image.GetName(), imageInWords(image), render.OrDash(strings.Join(templates, "; ")))
	}
	a.Printf(a.Out, "%s", table)
	return nil
}

func imageInWords(image *kusciapb.QueryAppImageResponseData) string {
	return strings.TrimSuffix(image.GetImage().GetName()+":"+image.GetImage().GetTag(), ":")
}

// templateInWords reads "serving for client, server".
func templateInWords(t *kusciapb.DeployTemplate) string {
	if t.GetRole() == "" {
		return t.GetName()
	}
	return t.GetName() + " for " + t.GetRole()
}

func getCommand(a *app.App) *cobra.Command {
	var output string
	var token apiclient.KusciaToken
	command := &cobra.Command{
		Use:   "get NAME",
		Short: "Show an AppImage",
		Long: `Show an AppImage, as far as Kuscia's API says it: port numbers, among others, are to be seen with kubectl get aimg NAME -o yaml. What
"-o json" prints "slipway appimage apply" takes.`,
		Args:              app.ExactName("an AppImage", "NAME"),
		ValidArgsFunction: a.Complete(names),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			data, err := apiclient.KusciaData(api.QueryKusciaAppImage(c.Context(), client.KusciaMessage{"name": args[0]}, token.Shown))
			if err != nil {
				return err
			}
			if done, err := a.PrintObject(output, data); done || err != nil {
				return err
			}
			image := &kusciapb.QueryAppImageResponseData{}
			if err := apiclient.ReadKuscia(data, image); err != nil {
				return err
			}
			describe(a, image)
			return nil
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	token.Flags(command)
	return command
}

func describe(a *app.App, image *kusciapb.QueryAppImageResponseData) {
	a.Printf(a.Out, "AppImage %s is %s\n", render.OneLine(image.GetName()), render.OneLine(imageInWords(image)))
	table := render.NewTable("TEMPLATE", "REPLICAS", "CONTAINER", "PORTS")
	for _, t := range image.GetDeployTemplates() {
		replicas := "as its party says" // the message has 0 for both of unset and none
		if n := t.GetReplicas(); n > 0 {
			replicas = fmt.Sprint(n)
		}
		for _, c := range t.GetContainers() {
			var ports []string
			for _, p := range c.GetPorts() {
				ports = append(ports, fmt.Sprintf("%s (%s, %s)", p.GetName(), p.GetProtocol(), p.GetScope()))
			}
			table.Add(templateInWords(t), replicas, c.GetName(), render.OrDash(strings.Join(ports, ", ")))
		}
	}
	a.Printf(a.Out, "\n%s", table)
}

func deleteCommand(a *app.App) *cobra.Command {
	var token apiclient.KusciaToken
	command := a.DeleteCommand(app.Deletion{
		Noun: "AppImage", Argument: "NAME", Complete: names,
		Long: "Delete AppImages. Servings that run them go on with the version that they have; one that is changed afterwards needs another AppImage.",
		Call: func(c *cobra.Command, api *client.Client, name string) error {
			_, err := apiclient.KusciaData(api.DeleteKusciaAppImage(c.Context(), client.KusciaMessage{"name": name}, token.Shown))
			return err
		},
	})
	command.Args = app.SomeNames("an AppImage", "NAME")
	token.Flags(command)
	return command
}

func names(ctx context.Context, api *client.Client) ([]string, error) {
	images, _, err := page(ctx, api, apiclient.KusciaToken{}, apiclient.PageSize, nil)
	var entries []string
	for _, text := range images {
		image := &kusciapb.QueryAppImageResponseData{}
		if err := apiclient.ReadKuscia(text, image); err != nil {
			return nil, err
		}
		entries = append(entries, image.GetName()+"\t"+render.OneLine(imageInWords(image)))
	}
	return entries, err
}
