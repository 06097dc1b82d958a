package appimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
)

func applyCommand(a *app.App) *cobra.Command {
	var files []string
	var output string
	var token apiclient.KusciaToken
	command := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Register AppImages, or change them",
		Long: `Register AppImages, or change them. A file holds AppImage objects (kuscia.secretflow/v1alpha1) or Kuscia's requests
(CreateAppImageRequest), separated by "---". An AppImage that says what Kuscia's request cannot, such as the number of a port, is refused with
the paths: register it with kubectl apply. Servings that run an AppImage take the change over with their next update.`,
		Example: `  slipway appimage apply -f image.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			images, err := readAppImages(a, files)
			if err != nil {
				return err
			}
			api, err := a.ConnectToWrite(c)
			if err != nil {
				return err
			}
			return applyImages(c.Context(), a, api, token, images, output)
		},
	}
	app.ClientFlags(command)
	manifest.FileFlag(command, &files)
	app.OutputFlag(command, &output)
	token.Flags(command)
	return command
}

// readAppImages reads files that hold AppImages only.
func readAppImages(a *app.App, files []string) ([]*kusciapb.CreateAppImageRequest, error) {
	r := &manifest.KusciaReader{}
	r.ReadRequest = r.ReadImageRequest
	if err := manifest.ReadInto(a, files, r); err != nil {
		return nil, err
	}
	if len(r.Findings) == 0 && len(r.Found.Images) == 0 {
		r.Refuse(strings.Join(files, ", "), 0, "", "there is no %s among the documents", manifest.KindAppImage)
	}
	if len(r.Findings) > 0 {
		return nil, manifest.RefuseDocuments(a, r.Findings, "nothing was sent")
	}
	return r.Found.Images, nil
}

// applyImages sends the AppImages one after another; what fails ends it.
func applyImages(ctx context.Context, a *app.App, api *client.Client, token apiclient.KusciaToken, images []*kusciapb.CreateAppImageRequest, output string) error {
	results := []manifest.Applied{}
	for _, image := range images {
		outcome, err := ApplyImage(ctx, api, token, image, true)
		if err != nil {
			return fmt.Errorf("%s %s: %w", manifest.KindAppImage, image.GetName(), err)
		}
		results = append(results, manifest.Applied{Name: image.GetName(), Outcome: outcome})
		if output == app.Table {
			a.Printf(a.Out, "%s %s %s\n", manifest.KindAppImage, image.GetName(), outcome)
		}
	}
	_, err := a.PrintObject(output, results)
	return err
}

// ApplyImage registers an AppImage, unless it is there as it should be. One that is there and is another is changed, where that is wanted.
func ApplyImage(ctx context.Context, api *client.Client, token apiclient.KusciaToken, image *kusciapb.CreateAppImageRequest, change bool) (outcome string, err error) {
	body, err := (protojson.MarshalOptions{UseProtoNames: true}).Marshal(image)
	if err != nil {
		return "", err
	}
	_, err = apiclient.KusciaData(api.CreateKusciaAppImageWithBody(ctx, apiclient.JSONBody, bytes.NewReader(body), token.Shown))
	var refused *apiclient.KusciaError
	if err == nil || !errors.As(err, &refused) || refused.Code != apiclient.KusciaCodeAppImageExists {
		return "created", err
	}
	data, err := apiclient.KusciaData(api.QueryKusciaAppImage(ctx, client.KusciaMessage{"name": image.GetName()}, token.Shown))
	if err != nil {
		return "", err
	}
	there := &kusciapb.QueryAppImageResponseData{}
	if err := apiclient.ReadKuscia(data, there); err != nil {
		return "", err
	}
	asked := &kusciapb.QueryAppImageResponseData{Name: image.GetName(), Image: image.GetImage(), ConfigTemplates: image.GetConfigTemplates(), DeployTemplates: image.GetDeployTemplates()}
	if proto.Equal(there, asked) {
		return "unchanged", nil
	}
	if !change {
		return "", errors.New("there is one of that name, and it is another one: choose another name, or change it with slipway appimage apply, or with kubectl apply")
	}
	_, err = apiclient.KusciaData(api.UpdateKusciaAppImageWithBody(ctx, apiclient.JSONBody, bytes.NewReader(body), token.Shown))
	return "replaced", err
}
