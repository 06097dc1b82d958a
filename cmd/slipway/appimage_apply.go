package main

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
)

func (a *app) appImageApplyCommand() *cobra.Command {
	var files []string
	var output string
	var token kusciaToken
	command := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Register AppImages, or change them",
		Long: `Register AppImages, or change them. A file holds AppImage objects (kuscia.secretflow/v1alpha1) or Kuscia's requests
(CreateAppImageRequest), separated by "---". An AppImage that says what Kuscia's request cannot, such as the number of a port, is refused with
the paths: register it with kubectl apply. Servings that run an AppImage take the change over with their next update.`,
		Example: `  slipway appimage apply -f image.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			images, err := a.readAppImages(files)
			if err != nil {
				return err
			}
			api, err := a.connectToWrite(c)
			if err != nil {
				return err
			}
			return a.applyImages(c.Context(), api, token, images, output)
		},
	}
	clientFlags(command)
	fileFlag(command, &files)
	outputFlag(command, &output)
	token.flags(command)
	return command
}

// readAppImages reads files that hold AppImages only.
func (a *app) readAppImages(files []string) ([]*kusciapb.CreateAppImageRequest, error) {
	r := &documentReader{}
	r.readRequest = r.readImageRequest
	if err := a.readInto(files, r); err != nil {
		return nil, err
	}
	if len(r.findings) == 0 && len(r.found.images) == 0 {
		r.refuse(strings.Join(files, ", "), 0, "", "there is no %s among the documents", kindAppImage)
	}
	if len(r.findings) > 0 {
		return nil, a.refuseDocuments(r.findings, "nothing was sent")
	}
	return r.found.images, nil
}

// applyImages sends the AppImages one after another; what fails ends it.
func (a *app) applyImages(ctx context.Context, api *client.Client, token kusciaToken, images []*kusciapb.CreateAppImageRequest, output string) error {
	results := []applied{}
	for _, image := range images {
		outcome, err := applyImage(ctx, api, token, image, true)
		if err != nil {
			return fmt.Errorf("%s %s: %w", kindAppImage, image.GetName(), err)
		}
		results = append(results, applied{Name: image.GetName(), Outcome: outcome})
		if output == outputTable {
			a.printf(a.out, "%s %s %s\n", kindAppImage, image.GetName(), outcome)
		}
	}
	_, err := a.printObject(output, results)
	return err
}

// applyImage registers an AppImage, unless it is there as it should be. One that is there and is another is changed, where that is wanted.
func applyImage(ctx context.Context, api *client.Client, token kusciaToken, image *kusciapb.CreateAppImageRequest, change bool) (outcome string, err error) {
	body, err := (protojson.MarshalOptions{UseProtoNames: true}).Marshal(image)
	if err != nil {
		return "", err
	}
	_, err = kusciaData(api.CreateKusciaAppImageWithBody(ctx, jsonBody, bytes.NewReader(body), token.shown))
	var refused *kusciaError
	if err == nil || !errors.As(err, &refused) || refused.code != kusciaCodeAppImageExists {
		return "created", err
	}
	data, err := kusciaData(api.QueryKusciaAppImage(ctx, client.KusciaMessage{"name": image.GetName()}, token.shown))
	if err != nil {
		return "", err
	}
	there := &kusciapb.QueryAppImageResponseData{}
	if err := readKuscia(data, there); err != nil {
		return "", err
	}
	asked := &kusciapb.QueryAppImageResponseData{Name: image.GetName(), Image: image.GetImage(), ConfigTemplates: image.GetConfigTemplates(), DeployTemplates: image.GetDeployTemplates()}
	if proto.Equal(there, asked) {
		return "unchanged", nil
	}
	if !change {
		return "", errors.New("there is one of that name, and it is another one: choose another name, or change it with slipway appimage apply, or with kubectl apply")
	}
	_, err = kusciaData(api.UpdateKusciaAppImageWithBody(ctx, jsonBody, bytes.NewReader(body), token.shown))
	return "replaced", err
}
