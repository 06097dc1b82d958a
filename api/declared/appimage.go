package declared

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// PutAppImage creates the AppImage, or replaces its content. generation is the generation that the request is based on,
// 0 for an AppImage that must not exist with other content; nil: any.
func (w Writer) PutAppImage(ctx context.Context, name string, spec kuscia.AppImageSpec,
	generation *int64) (result schema.PutDeclaredResult, err error) {
	err = failure.RetryOnConflict("AppImage "+name, func() error {
		stored, err := w.Home.GetAppImage(ctx, name)
		switch {
		case failure.Is(err, failure.NotFound):
			stored = &kuscia.AppImage{}
		case err != nil:
			return err
		case equality.Semantic.DeepEqual(stored.Spec, spec):
			result = schema.PutDeclaredResult{Name: name, Generation: stored.Generation}
			return nil
		}
		before := stored.Generation
		if err := checkBase("AppImage "+name, ", with other content: choose another name, or change it with "+
			"PUT /api/v1/appimages/"+name, generation, before); err != nil {
			return err
		}
		if before == 0 {
			result = created(name)
			return w.Home.CreateAppImage(ctx, &kuscia.AppImage{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
		}
		stored.Spec = spec
		err = w.Home.UpdateAppImage(ctx, stored)
		// The API server fills in defaults, so that the content may be the stored one after all.
		result = schema.PutDeclaredResult{Name: name, Generation: stored.Generation, Changed: stored.Generation != before}
		return err
	})
	return result, err
}
