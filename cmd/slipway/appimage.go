package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/api/kuscia/kusciapb"
)

func (a *app) appImageCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "appimage",
		Aliases: []string{"appimages", "aimg"},
		Short:   "AppImages: the applications that servings run",
	}
	command.AddCommand(a.appImageApplyCommand(), a.appImageListCommand(), a.appImageGetCommand(), a.appImageDeleteCommand())
	return command
}

func (a *app) appImageListCommand() *cobra.Command {
	var output string
	var token kusciaToken
	command := &cobra.Command{
		Use:   "list",
		Short: "List the AppImages",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := connect(c)
			if err != nil {
				return err
			}
			images, err := allPages(0, func(limit int, cursor *string) ([]json.RawMessage, string, error) {
				return appImagePage(c.Context(), api, token, limit, cursor)
			})
			if err != nil {
				return err
			}
			return a.printAppImages(output, images)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	token.flags(command)
	return command
}

// appImagePage is one page of the list, its elements as they were answered.
func appImagePage(ctx context.Context, api *client.Client, token kusciaToken, limit int, cursor *string) (images []json.RawMessage, next string, err error) {
	request := client.KusciaMessage{"page_size": limit}
	if cursor != nil {
		request["page_token"] = *cursor
	}
	data, err := kusciaData(api.ListKusciaAppImages(ctx, request, token.shown))
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

func (a *app) printAppImages(output string, images []json.RawMessage) error {
	if done, err := a.printObject(output, map[string]any{"items": images}); done || err != nil {
		return err
	}
	if len(images) == 0 {
		a.printf(a.err, "There are no AppImages: register one with kubectl apply -f FILE, or with `slipway appimage apply -f FILE`.\n")
		return nil
	}
	table := newTable("NAME", "IMAGE", "TEMPLATES")
	for _, text := range images {
		image := &kusciapb.QueryAppImageResponseData{}
		if err := readKuscia(text, image); err != nil {
			return err
		}
		var templates []string
		for _, t := range image.GetDeployTemplates() {
			templates = append(templates, templateInWords(t))
		}
		table.add(image.GetName(), imageInWords(image), orDash(strings.Join(templates, "; ")))
	}
	a.printf(a.out, "%s", table)
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

func (a *app) appImageGetCommand() *cobra.Command {
	var output string
	var token kusciaToken
	command := &cobra.Command{
		Use:   "get NAME",
		Short: "Show an AppImage",
		Long: `Show an AppImage, as far as Kuscia's API says it: port numbers, among others, are to be seen with kubectl get aimg NAME -o yaml. What
"-o json" prints "slipway appimage apply" takes.`,
		Args:              exactName("an AppImage", "NAME"),
		ValidArgsFunction: a.complete(appImageNames),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := connect(c)
			if err != nil {
				return err
			}
			data, err := kusciaData(api.QueryKusciaAppImage(c.Context(), client.KusciaMessage{"name": args[0]}, token.shown))
			if err != nil {
				return err
			}
			if done, err := a.printObject(output, data); done || err != nil {
				return err
			}
			image := &kusciapb.QueryAppImageResponseData{}
			if err := readKuscia(data, image); err != nil {
				return err
			}
			a.describeAppImage(image)
			return nil
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	token.flags(command)
	return command
}

func (a *app) describeAppImage(image *kusciapb.QueryAppImageResponseData) {
	a.printf(a.out, "AppImage %s is %s\n", oneLine(image.GetName()), oneLine(imageInWords(image)))
	table := newTable("TEMPLATE", "REPLICAS", "CONTAINER", "PORTS")
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
			table.add(templateInWords(t), replicas, c.GetName(), orDash(strings.Join(ports, ", ")))
		}
	}
	a.printf(a.out, "\n%s", table)
}

func (a *app) appImageDeleteCommand() *cobra.Command {
	var token kusciaToken
	command := a.deleteCommand(deletion{
		noun: "AppImage", argument: "NAME", complete: appImageNames,
		long: "Delete AppImages. Servings that run them go on with the version that they have; one that is changed afterwards needs another AppImage.",
		call: func(c *cobra.Command, api *client.Client, name string) error {
			_, err := kusciaData(api.DeleteKusciaAppImage(c.Context(), client.KusciaMessage{"name": name}, token.shown))
			return err
		},
	})
	command.Args = someNames("an AppImage", "NAME")
	token.flags(command)
	return command
}

func appImageNames(ctx context.Context, api *client.Client) ([]string, error) {
	images, _, err := appImagePage(ctx, api, kusciaToken{}, pageSize, nil)
	var entries []string
	for _, text := range images {
		image := &kusciapb.QueryAppImageResponseData{}
		if err := readKuscia(text, image); err != nil {
			return nil, err
		}
		entries = append(entries, image.GetName()+"\t"+oneLine(imageInWords(image)))
	}
	return entries, err
}
