package source

import (
	"strings"
	"testing"
)

// TestNoQuantity: the error names the field, the value, and what to write in place of it.
func TestNoQuantity(t *testing.T) {
	for value, want := range map[string]string{
		"64MB":      `"64MB" is not a quantity: write 64M or 64Mi`,
		"64mb":      `"64mb" is not a quantity: write 64M or 64Mi`,
		"1.5GB":     `"1.5GB" is not a quantity: write 1.5G or 1.5Gi`,
		"512K":      `"512K" is not a quantity: write 512k or 512Ki`,
		"8g":        `"8g" is not a quantity: write 8G or 8Gi`,
		"8gi":       `"8gi" is not a quantity: write 8Gi`,
		"8GiB":      `"8GiB" is not a quantity: write 8Gi`,
		"'8 Gi'":    `"8 Gi" is not a quantity: write 8Gi`,
		"'1,5Gi'":   `"1,5Gi" is not a quantity: write 1.5Gi`,
		"100 bytes": `"100 bytes" is not a quantity: write 100`,
		"1core":     `"1core" is not a quantity: write 1`,
		"0.5 CPUs":  `"0.5 CPUs" is not a quantity: write 0.5`,
		"500mcpu":   `"500mcpu" is not a quantity: write 500m`,
		"50%":       `"50%" is not a quantity: write an amount, such as 2, 500m, 64M or 64Mi`,
		"3 apples":  `"3 apples" is not a quantity: write an amount, such as 2, 500m, 64M or 64Mi`,
		"much":      `"much" is not a quantity: write a number, perhaps with a unit behind it, such as 2, 500m, 64M or 64Mi`,
		"[1]":       `must be a quantity, such as 2, 500m or 64Mi, not a list`,
		"true":      `must be a quantity, such as 2, 500m or 64Mi, not a boolean`,
	} {
		text := strings.Replace(goodPod, "image: i", "image: i\n    resources: {limits: {memory: "+value+"}}", 1)
		items := Decoder{NodeName: "n"}.Decode("f", []byte(text))
		const field = "spec.containers[0].resources.limits[memory]"
		if v := items[0].Result; v.Accepted || v.Field != field || v.Message != field+": "+want || v.Line == 0 {
			t.Errorf("%s: line %d: %s", value, v.Line, v.Message)
		}
	}
}

// TestFractionsOfBytes: an amount of bytes that is no whole number is accepted, with a warning.
func TestFractionsOfBytes(t *testing.T) {
	const why = ` is no whole number of bytes: "m" stands for thousandths; write M or Mi for millions`
	for spec, want := range map[string]string{
		"resources: {limits: {memory: 64m, cpu: 500m}}":               "limits[memory]: 64m" + why,
		"resources: {requests: {memory: 64m}}":                        "requests[memory]: 64m" + why,
		"resources: {requests: {memory: 1}, limits: {memory: 1500m}}": "limits[memory]: 1500m" + why,
		"resources: {limits: {memory: 1.5Ki, cpu: 1m}}":               "",
		"resources: {limits: {ephemeral-storage: 0.5}}":               "limits[ephemeral-storage]: 500m" + why,
	} {
		items := Decoder{NodeName: "n"}.Decode("f", []byte(strings.Replace(goodPod, "image: i", "image: i\n    "+spec, 1)))
		got := strings.Join(items[0].Result.Warnings, "; ")
		if want != "" {
			want = "line 9: spec.containers[0].resources." + want
		}
		if !items[0].Result.Accepted || got != want {
			t.Errorf("%s: %+v", spec, items[0].Result)
		}
	}
	volume := goodPod + "  volumes: [{name: v, emptyDir: {sizeLimit: 10m}}]\n"
	if v := (Decoder{NodeName: "n"}).Decode("f", []byte(volume))[0].Result; !v.Accepted || len(v.Warnings) != 1 ||
		!strings.Contains(v.Warnings[0], "spec.volumes[0].emptyDir.sizeLimit: 10m"+why) {
		t.Errorf("%+v", v)
	}
}

// TestCompose: a file of compose is refused with what to do.
func TestCompose(t *testing.T) {
	for _, text := range []string{
		"services:\n  web: {image: nginx}\n", "version: '3'\nname: x\nservices:\n  web:\n    image: nginx\nvolumes: {}\n",
	} {
		v := Decoder{NodeName: "n"}.Decode("compose.yaml", []byte(text))[0].Result
		if v.Accepted || !strings.Contains(v.Message, "docs/migration.md") || v.Line == 0 {
			t.Errorf("%+v", v)
		}
	}
}
